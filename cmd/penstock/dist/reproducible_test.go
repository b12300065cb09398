package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// elsewhereEnv makes the test binary make a release, in the circumstances that it finds.
const elsewhereEnv = "PENSTOCK_DIST_ELSEWHERE"

// elsewhere is what it is told.
type elsewhere struct{ Root, Out, Binary string }

func makeElsewhere(text string) error {
	var e elsewhere
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return err
	}
	r := testRelease()
	r.root, r.out, r.binary = e.Root, e.Out, e.Binary
	return r.make()
}

// Made a second time, in another folder, by a process with another mask for new files, time zone, language, home and
// name of its user, the release is the same to the byte. make reproducible builds the programs twice, too.
func TestReproducible(t *testing.T) {
	first := filepath.Dir(made(t, "SHA256SUMS"))
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	// Another folder, in which everything is younger and has other modes. The modules are found by links: to list what
	// the program consists of takes the sources, which are not copied into the release.
	other := filepath.Join(t.TempDir(), "another folder")
	for _, name := range []string{"LICENSE", "CHANGELOG.md", "packaging", "docs"} {
		copyTree(t, filepath.Join(here, name), filepath.Join(other, name))
	}
	names, err := os.ReadDir(here)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if _, err := os.Lstat(filepath.Join(other, n.Name())); err != nil && n.Name()[0] != '.' {
			if err := os.Symlink(filepath.Join(here, n.Name()), filepath.Join(other, n.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	text, err := json.Marshal(elsewhere{other, out, testRelease().binary})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `umask 077 && exec "$0"`, os.Args[0])
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), elsewhereEnv+"="+string(text), "TZ=Pacific/Kiritimati", "LC_ALL=tr_TR.UTF-8", "LANGUAGE=tr", "USER=somebody", "LOGNAME=somebody", "SOURCE_DATE_EPOCH=1",
		"GOCACHE="+strings.TrimSpace(output(t, "go", "env", "GOCACHE")), "GOPATH="+strings.TrimSpace(output(t, "go", "env", "GOPATH")), "HOME="+t.TempDir())
	if log, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	sameFiles(t, first, out, 6)
}

// copyTree copies a file or folder. What is copied is younger than what it is a copy of, and has other modes.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name = filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		return os.WriteFile(name, text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sameFiles compares two folders of n files, of which one has the checksums of the others.
func sameFiles(t *testing.T, first, second string, n int) {
	t.Helper()
	names, err := os.ReadDir(first)
	more, err2 := os.ReadDir(second)
	if err != nil || err2 != nil || len(names) != n || len(more) != n {
		t.Fatal(names, more, err, err2)
	}
	sums := string(mustRead(t, filepath.Join(first, "SHA256SUMS")))
	for _, name := range names {
		a, b := mustRead(t, filepath.Join(first, name.Name())), mustRead(t, filepath.Join(second, name.Name()))
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs the second time, from byte %d of %d on", name.Name(), firstDifference(a, b), len(a))
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(a), name.Name()); name.Name() != "SHA256SUMS" && !strings.Contains(sums, line) {
			t.Errorf("SHA256SUMS has no line %s", line)
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// A build is told everything that decides what the compiler makes, and nothing about where it happens.
func TestBuildCommand(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := "#!/bin/sh\n{ echo \"$PWD\"; printf '%s\\n' \"$@\"; env; } > " + log + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, set := range []string{"GOFLAGS=-race", "GOAMD64=v3", "GOARM64=v9.0", "GOEXPERIMENT=x", "CGO_ENABLED=1", "GOOS=plan9"} {
		name, value, _ := strings.Cut(set, "=")
		t.Setenv(name, value)
	}
	r := testRelease()
	if err := r.build(runtime.GOARCH, "somewhere"); err != nil {
		t.Fatal(err)
	}
	text := "\n" + string(mustRead(t, log))
	for _, want := range []string{"-trimpath", "-buildvcs=false", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOOS=linux", "GOARCH=" + runtime.GOARCH} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if !strings.Contains(text, "-buildid=") || strings.Contains(text, "plan9") || !strings.HasPrefix(text, "\n"+r.root+"\n") {
		t.Error(text)
	}
}

// The time of a release is that of its commit, or SOURCE_DATE_EPOCH, whatever the time zone.
func TestCommitTime(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	t.Setenv("TZ", "Pacific/Kiritimati")
	if at, err := commitTime("."); err != nil || !at.Equal(time.Unix(1790000000, 0)) || at.Location() != time.UTC {
		t.Errorf("%v, %v", at, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := commitTime("."); err == nil {
		t.Error("a time that is no number is taken")
	}
}
