package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// otherLayout builds the daemon with one more word in the middle of a series of counters, as a version with one more cause has it.
func otherLayout(t *testing.T) string {
	t.Helper()
	const words = "internal/account/words.go"
	text, err := os.ReadFile(words)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for from, to := range map[string]string{"\tretriesAt\n": "\tretriesAt\n\totherAt\n", `"failures", "retries")`: `"failures", "retries", "other")`} {
		if strings.Count(changed, from) != 1 {
			t.Fatalf("%s has changed: %q is not in it once", words, from)
		}
		changed = strings.Replace(changed, from, to, 1)
	}
	path, err := filepath.Abs(words)
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: dir + "/words.go"}})
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/words.go", []byte(changed), 0o600), os.WriteFile(dir+"/overlay.json", overlay, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-overlay", dir+"/overlay.json", "-o", dir+"/other", ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir + "/other"
}

// Counters and histograms go on from version to version, there and back, and through a crash of each, though the versions
// arrange them differently.
func TestUpgradeToOtherLayout(t *testing.T) {
	t.Parallel()
	other := otherLayout(t)
	k := runKeeper(t, "max-restart-delay: 100ms", "listeners: {t: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n")
	want := 0
	flows := func(when string) {
		t.Helper()
		for range 3 {
			c := testnet.Dial(t, k.at("t"))
			mustPing(t, c)
			c.Close()
			want++
		}
		testwait.Until(t, fmt.Sprintf("%d flows are counted %s", want, when), func() bool {
			return k.metric("penstock_flow_duration_seconds_count", `listener="t"`) == float64(want)
		})
	}
	flows("at first")
	before := k.counters(t)
	for i, step := range []struct {
		name string
		do   func()
	}{
		{"by the other version", func() { k.upgradeTo(other) }},
		{"after a crash of it", k.crash},
		{"by this version", func() { k.upgradeTo(binary) }},
		{"after a crash", k.crash},
		{"by the other version, again", func() { k.upgradeTo(other) }},
		{"by the same version", func() { k.upgradeTo(other) }},
		{"by this version, again", func() { k.upgradeTo(binary) }},
	} {
		step.do()
		k.started(int64(i + 1))
		now := k.counters(t)
		for series, n := range before {
			if m, ok := now[series]; !ok || m < n {
				t.Errorf("%s: %s is %v, was %v", step.name, series, m, n)
			}
		}
		flows(step.name)
		before = k.counters(t)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, line := range k.lines {
		if msg, _ := line["msg"].(string); strings.Contains(msg, "counters begin at 0") {
			t.Errorf("%v", line)
		}
	}
}

// upgradeTo upgrades to a binary.
func (k *kept) upgradeTo(path string) {
	k.t.Helper()
	if code, out := k.command("upgrade", "--binary", path); code != 0 {
		k.t.Fatalf("exit code %d: %s", code, out)
	}
}
