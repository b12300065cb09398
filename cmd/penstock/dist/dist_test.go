package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

var folder string // of the release that the tests share

func TestMain(m *testing.M) {
	if text := os.Getenv(elsewhereEnv); text != "" {
		if err := makeElsewhere(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testnet.Main(m, func() (func(), error) {
		var err error
		folder, err = os.MkdirTemp("", "dist-test")
		return func() { os.RemoveAll(folder) }, err
	})
}

const version = "1.2.3"

var root = filepath.Join("..", "..", "..")

// packages makes a release for this host's architecture, once.
var packages = sync.OnceValue(func() error {
	// A static binary from packages that are compiled already: -trimpath and
	// CGO_ENABLED=0, as a release has it, would compile everything anew.
	binary := filepath.Join(folder, "penstock")
	build := exec.Command("go", "build", "-ldflags", "-linkmode external -extldflags -static -X github.com/penstock/penstock/cmd/penstock/internal/app.release=v"+version, "-o", binary, "./cmd/penstock")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return testRelease().make()
})

func testRelease() *release {
	absolute, err := filepath.Abs(root)
	if err != nil {
		panic(err)
	}
	return &release{root: absolute, out: filepath.Join(folder, "out"), version: version, time: time.Unix(1790000000, 0).UTC(), arches: []string{runtime.GOARCH}, binary: filepath.Join(folder, "penstock")}
}

// made returns a file of the release.
func made(t *testing.T, name string) string {
	t.Helper()
	if testnet.RaceEnabled {
		t.Skip("nothing here is concurrent")
	}
	if err := packages(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "out", strings.ReplaceAll(name, "ARCH", runtime.GOARCH))
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// output runs a command that must succeed.
func output(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}

// The .deb is installed, used and removed in a copy of this machine that is thrown away,
// with a network of its own.
func TestDebian(t *testing.T) {
	deb := made(t, "penstock_"+version+"_ARCH.deb")
	need(t, "dpkg", "unshare", "systemd-analyze", "man", "ip")
	if os.Getuid() != 0 {
		t.Skip("only root can install a package")
	}
	// An overlay over / in a mount namespace of its own: what is written goes to a
	// tmpfs that ends with the namespace.
	setup := `set -eu
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mount -t proc proc /mnt/root/proc
mount -t tmpfs tmpfs /mnt/root/run
mount --bind /dev /mnt/root/dev
cp "$1" /mnt/root/penstock.deb
`
	if out, err := exec.Command("unshare", "-m", "sh", "-c", setup, "sh", deb).CombinedOutput(); err != nil {
		t.Skipf("no overlay here: %v, %s", err, out)
	}
	use := `set -eu
fail() { echo "FAILED: $*"; exit 1; }
ours() { find /etc /usr /var/log /var/lib -xdev -path '*penstock*' -not -path '/usr/local/*' -not -path '/var/lib/dpkg/*'; }
ours > /before
dpkg -i /penstock.deb
penstock version | grep -q "penstock v1.2.3 "
penstock check -c /etc/penstock/penstock.yaml
[ ! -e /etc/systemd/system/multi-user.target.wants/penstock.service ] || fail "it enabled itself"
grep -q '^Type=notify$' /usr/lib/systemd/system/penstock.service && grep -q '^ExecReload=' /usr/lib/systemd/system/penstock.service
systemd-analyze verify penstock.service 2>&1 | grep -i penstock && fail "the unit"
man --warnings penstock-run > /dev/null 2> /warnings; [ ! -s /warnings ] || fail "$(cat /warnings)"
bash -c '. /usr/share/bash-completion/completions/penstock && complete -p penstock'
dpkg -V penstock
# It runs as the unit runs it: with that configuration, and not as root.
mkdir /run/penstock && chown 65532 /run/penstock
setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs penstock run -c /etc/penstock/penstock.yaml 2> /log &
for i in $(seq 300); do [ -S /run/penstock/admin.sock ] && break; sleep 0.1; done
penstock status | grep -q try || fail "$(cat /log)"
penstock status | grep -q '^keeper' || fail "no keeper: $(cat /log)"
kill $!; wait $! || fail "$(cat /log)"
# Its access log is rotated while it runs. There is no systemd to pass the signal on.
if command -v logrotate; then
	mkdir -p /var/log/penstock /fake && chown 65532 /var/log/penstock
	sed 's|^# access-log:|access-log:|' /etc/penstock/penstock.yaml > /logged.yaml
	setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs penstock run -c /logged.yaml 2> /log &
	pid=$!
	printf '#!/bin/sh\ncase "$*" in *is-active*) exit 0;; *--kill-who=main*--signal=USR1*) kill -USR1 %s;; *) exit 1;; esac\n' $pid > /fake/systemctl
	chmod +x /fake/systemctl
	for i in $(seq 300); do penstock status > /dev/null 2>&1 && break; sleep 0.1; done
	flow() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/7000; echo hello >&3; read -r line <&3'; }
	flow; for i in $(seq 300); do [ -s /var/log/penstock/access.log ] && break; sleep 0.1; done
	PATH=/fake:$PATH logrotate --force --state /rotated /etc/logrotate.d/penstock || fail "logrotate"
	[ -s /var/log/penstock/access.log.1 ] || fail "nothing was rotated"
	for i in $(seq 300); do [ -e /var/log/penstock/access.log ] && break; sleep 0.1; done
	flow; for i in $(seq 300); do [ -s /var/log/penstock/access.log ] && break; sleep 0.1; done
	[ -s /var/log/penstock/access.log ] || fail "no log after the rotation: $(cat /log)"
	[ "$(wc -l < /var/log/penstock/access.log.1)" = 1 ] || fail "rotated: $(cat /var/log/penstock/access.log.1)"
	kill $pid; wait $pid || fail "$(cat /log)"
fi
# A changed configuration survives an upgrade and a removal, but not a purge.
echo '# mine' >> /etc/penstock/penstock.yaml
dpkg --force-confdef --force-confold -i /penstock.deb
grep -q '^# mine' /etc/penstock/penstock.yaml
dpkg -r penstock
[ ! -e /usr/bin/penstock ] || fail "the program stayed"
grep -q '^# mine' /etc/penstock/penstock.yaml
# With DynamicUser=, systemd makes the folders of the service in private, and links to them.
for in in /var/log /var/lib; do mkdir -p $in/private/penstock && ln -sfn private/penstock $in/penstock; done
dpkg -P penstock
ours > /after
diff /before /after || fail "purged, it left something"
echo WELL
`
	out, err := exec.Command("unshare", "-m", "-n", "sh", "-c", setup+"ip link set lo up\nexec chroot /mnt/root sh -c \"$2\"", "sh", deb, use).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "WELL\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat("/etc/penstock"); err == nil {
		t.Error("the machine was touched")
	}
}

func TestRPM(t *testing.T) {
	rpm := made(t, "penstock-"+version+"-1."+rpmArch(runtime.GOARCH)+".rpm")
	need(t, "rpm")
	list := output(t, "rpm", "-qlp", rpm)
	for _, want := range []string{"/usr/bin/penstock\n", "/usr/lib/systemd/system/penstock.service\n", "/etc/penstock/penstock.yaml\n", "/etc/logrotate.d/penstock\n", "/usr/share/doc/penstock/configuration.md\n", "/usr/share/doc/penstock/grafana/penstock.json\n", "/usr/share/man/man1/penstock-run.1.gz\n", "/usr/share/doc/penstock/examples/layers/production.yaml\n", "/usr/share/zsh/site-functions/_penstock\n",
		"\n/etc/penstock\n", "\n/usr/share/penstock\n", "\n/usr/share/doc/penstock\n", "\n/usr/share/doc/penstock/examples\n"} {
		if !strings.Contains(list, want) {
			t.Errorf("%s is missing in\n%s", want, list)
		}
	}
	if strings.Contains(list, "vendor-completions") {
		t.Errorf("Debian's folder of zsh:\n%s", list)
	}
	if config := output(t, "rpm", "-qcp", rpm); config != "/etc/logrotate.d/penstock\n/etc/penstock/penstock.yaml\n" {
		t.Errorf("configuration files: %s", config)
	}
	if check := output(t, "rpm", "-K", "--nosignature", rpm); !strings.Contains(check, "digests OK") {
		t.Error(check)
	}
	if info := output(t, "rpm", "-qip", rpm); !strings.Contains(info, "Version     : "+version+"\n") || !strings.Contains(info, "License     : Apache-2.0\n") {
		t.Error(info)
	}
}

// The image is what its digests say, and runs without root and with nothing else.
func TestImage(t *testing.T) {
	image := untar(t, mustRead(t, made(t, "penstock-"+version+"-linux-ARCH.oci.tar")))
	parse := func(text []byte, to any) {
		t.Helper()
		if err := json.Unmarshal(text, to); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	blob := func(d descriptor) []byte {
		t.Helper()
		text := image["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(text) != d.Size || fmt.Sprintf("sha256:%x", sha256.Sum256(text)) != d.Digest {
			t.Fatalf("the blob %+v has %d bytes", d, len(text))
		}
		return text
	}
	var index struct{ Manifests []descriptor }
	parse(image["index.json"], &index)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	parse(blob(index.Manifests[0]), &manifest)
	var config struct {
		Architecture string
		Config       struct {
			User            string
			Entrypoint, Cmd []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	parse(blob(manifest.Config), &config)
	if config.Architecture != runtime.GOARCH || config.Config.User != "65532:65532" {
		t.Errorf("%+v", config)
	}
	var docker []struct {
		Config string
		Layers []string
	}
	parse(image["manifest.json"], &docker)
	if image[docker[0].Config] == nil || image[docker[0].Layers[0]] == nil {
		t.Errorf("%+v", docker)
	}
	layer := gunzip(t, blob(manifest.Layers[0]))
	if fmt.Sprintf("sha256:%x", sha256.Sum256(layer)) != config.RootFS.DiffIDs[0] {
		t.Fatalf("the layer is not %s", config.RootFS.DiffIDs)
	}
	need(t, "unshare", "chroot", "tar")
	if os.Getuid() != 0 {
		t.Skip("only root can change the root folder")
	}
	dir := t.TempDir()
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(layer)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	in := []string{"chroot", "--userspec=65532:65532", dir}
	if out := output(t, append(in, config.Config.Entrypoint[0], "version")...); !strings.HasPrefix(out, "penstock v"+version+" ") {
		t.Error(out)
	}
	// Whatever runs a container mounts /proc in it. The keeper needs it.
	if err := os.Mkdir(filepath.Join(dir, "proc"), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	argv := append([]string{"unshare", "-m", "sh", "-c", `mount -t proc proc "$0" && exec "$@"`, filepath.Join(dir, "proc")}, in...)
	argv = append(append(argv, config.Config.Entrypoint...), config.Config.Cmd...)
	daemon := exec.Command(argv[0], argv[1:]...)
	var log bytes.Buffer
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	var out []byte
	var err error
	if !testwait.For(func() bool {
		out, err = exec.Command("chroot", "--userspec=65532:65532", dir, "/usr/bin/penstock", "status").CombinedOutput()
		return err == nil && strings.Contains(string(out), "try") && strings.Contains(string(out), "\nkeeper ")
	}) {
		t.Errorf("%v: %s", err, out)
	}
	daemon.Process.Signal(os.Interrupt)
	if err := <-ended; err != nil {
		t.Errorf("%v: %s", err, &log)
	}
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func gunzip(t *testing.T, text []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if text, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return text
}

// untar returns the files of an archive.
func untar(t *testing.T, text []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// The links of the packaged documentation lead to what is packaged, unless they leave docs.
func TestDocumentation(t *testing.T) {
	files := untar(t, gunzip(t, mustRead(t, made(t, "penstock-"+version+"-linux-ARCH.tar.gz"))))
	doc := "penstock-" + version + "-linux-" + runtime.GOARCH + "/usr/share/doc/penstock/"
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	links := 0
	for name, text := range files {
		page, ok := strings.CutPrefix(name, doc)
		if !ok || path.Ext(page) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := path.Join(path.Dir(page), m[1])
			if strings.Contains(m[1], "://") || strings.HasPrefix(to, "../") {
				continue
			}
			links++
			if _, ok := files[doc+to]; !ok {
				if _, ok = files[doc+to+"/"]; !ok {
					t.Errorf("%s: %s is not packaged", page, m[1])
				}
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links", links)
	}
}
