// Command dist makes what a release is installed from: packages for Debian and Red
// Hat, container images, archives, a list of what is in each, and their checksums.
//
// The same commit and version give the same bytes: files have the time of the
// commit, archives a fixed order, and nothing says where or by whom it was made.
package main

import (
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nfpm writes .deb and .rpm. It is the last version before its packager for
// Windows, which brings modules that packages for Linux do not need.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// release is what is to be made.
type release struct {
	root    string // of the checkout
	out     string
	version string // without the v
	time    time.Time
	arches  []string
	binary  string // of this host, if it is not to be built
}

var versionRE = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?)$`)

func main() {
	version := flag.String("version", "", "the version, such as v1.2.3")
	out := flag.String("out", "dist", "the folder to write to")
	arches := flag.String("arch", "amd64,arm64", "the architectures")
	flag.Parse()
	m := versionRE.FindStringSubmatch(*version)
	if m == nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "dist: -version must be given; allowed: vMAJOR.MINOR.PATCH")
		os.Exit(2)
	}
	commit, err := commitTime(".")
	if err == nil {
		r := &release{root: ".", out: *out, version: m[1], time: commit, arches: strings.Split(*arches, ",")}
		err = r.make()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// commitTime returns SOURCE_DATE_EPOCH, or the time of the commit that is checked out.
func commitTime(root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "-c", "safe.directory=*", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("git log: %w; without git, set SOURCE_DATE_EPOCH", err)
		}
		text = string(out)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// run runs a command in the checkout.
func (r *release) run(env []string, argv ...string) error {
	_, err := r.output(env, argv...)
	return err
}

// output runs a command in the checkout, and returns what it writes.
func (r *release) output(env []string, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(argv, " "), err, out, errs.String())
	}
	return string(out), nil
}

// settled are what else decides which code the compiler makes. Whoever builds may have set them to something else.
var settled = []string{"GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GOWORK=", "CGO_ENABLED=0"}

// build builds the daemon for an architecture.
func (r *release) build(arch, to string) error {
	to, err := filepath.Abs(to) // it is built in the checkout
	if err != nil {
		return err
	}
	return r.run(append(settled, "GOOS=linux", "GOARCH="+arch), "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X github.com/penstock/penstock/cmd/penstock/internal/app.release=v"+r.version, "-o", to, "./cmd/penstock")
}

// make makes everything in r.out.
func (r *release) make() error {
	work, err := os.MkdirTemp("", "dist")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	host := r.binary
	if host == "" {
		host = filepath.Join(work, "penstock")
		if err := r.build(runtime.GOARCH, host); err != nil {
			return err
		}
	}
	common, err := r.commonFiles(host, filepath.Join(work, "manual"))
	if err != nil {
		return err
	}
	for _, arch := range r.arches {
		binary := host
		if arch != runtime.GOARCH {
			binary = filepath.Join(work, "penstock-"+arch)
			if err := r.build(arch, binary); err != nil {
				return err
			}
		}
		if err := r.makeFor(arch, binary, common, filepath.Join(work, arch)); err != nil {
			return err
		}
	}
	return r.checksums()
}

// entry is a file of a package. Its content is in memory: the largest is the daemon.
type entry struct {
	path   string // without the leading slash
	mode   int64
	text   []byte
	config bool   // kept when the package is upgraded
	only   string // the kind of package that has it; empty: all
	folder bool
	owner  int
}

// licensesPath is where packages have the licences of others.
const licensesPath = "usr/share/doc/penstock/third-party-licenses.txt"

// makeFor makes what one architecture has.
func (r *release) makeFor(arch, binary string, common []entry, work string) error {
	text, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	licenses, err := r.licenses(arch)
	if err != nil {
		return err
	}
	sbom, err := r.sbom(arch, binary, licenses.declared)
	if err != nil {
		return err
	}
	files := append(slices.Clip(common), entry{path: "usr/bin/penstock", mode: 0o755, text: text}, entry{path: "usr/share/doc/penstock/sbom.spdx.json", mode: 0o644, text: sbom}, entry{path: licensesPath, mode: 0o644, text: licenses.text})
	slices.SortFunc(files, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	base := "penstock-" + r.version + "-linux-" + arch
	if err := os.WriteFile(filepath.Join(r.out, base+".spdx.json"), sbom, 0o644); err != nil {
		return err
	}
	if err := r.archive(filepath.Join(r.out, base+".tar.gz"), base+"/", files); err != nil {
		return err
	}
	if err := r.image(filepath.Join(r.out, base+".oci.tar"), arch, files); err != nil {
		return err
	}
	for kind, name := range map[string]string{"deb": "penstock_" + r.version + "_" + arch + ".deb", "rpm": "penstock-" + r.version + "-1." + rpmArch(arch) + ".rpm"} {
		if err := r.pack(kind, filepath.Join(r.out, name), arch, files, filepath.Join(work, kind)); err != nil {
			return err
		}
	}
	return nil
}

// rpmArch returns the name that Red Hat has for an architecture.
func rpmArch(arch string) string {
	switch arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return arch
}

// checksums writes SHA256SUMS, as sha256sum -c reads it.
func (r *release) checksums() error {
	names, err := filepath.Glob(filepath.Join(r.out, "penstock*"))
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), filepath.Base(name))
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
