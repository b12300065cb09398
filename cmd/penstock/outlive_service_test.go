package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// As a service manager starts it, with a keeper: what the manager hears comes from the main process,
// whose number does not change, and the socket that it has bound outlives the worker.
func TestServiceOutlives(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	k := &kept{configured: &configured{dir: shortDir(t)}}
	k.file = filepath.Join(k.dir, "penstock.yaml")
	k.write(t, keeperOfTests+"listeners:\n  web: {inherit: http, to: \"{0}\"}\n", up.url())
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(k.dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	// SO_PASSCRED would tell who sends. systemd with NotifyAccess=main listens to the main process only.
	main := 0
	heard := func(want string) string {
		t.Helper()
		manager.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 4096)
		for {
			n, err := manager.Read(buf)
			if err != nil {
				t.Fatalf("no %s: %v", want, err)
			}
			text := string(buf[:n])
			for line := range strings.Lines(text) {
				if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "MAINPID="); ok && pid != fmt.Sprint(main) {
					t.Errorf("the main process is %s, and was %d", pid, main)
				}
			}
			if strings.Contains("\n"+text, "\n"+want+"=1") {
				return text
			}
		}
	}
	l := testnet.Listen(t, "tcp4")
	file, err := testnet.Unwrap(l).(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http NOTIFY_SOCKET="$1/notify" exec "$0" run -c "$1/penstock.yaml"`, binary, k.dir)
	cmd.ExtraFiles = []*os.File{file}
	k.begin(t, cmd)
	k.endWorker(t)
	file.Close()
	main = cmd.Process.Pid
	heard("READY")
	testwait.Until(t, "the API answers", k.answers)
	c := k.to("web")
	if c.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("it listens at %v, and was given %v", c.RemoteAddr(), l.Addr())
	}
	name(t, c)
	k.settled(1)
	upgrade := func() {
		k.upgrade()
		k.executed()
	}
	for _, disturb := range []func(){k.crash, upgrade} {
		disturb()
		mustPing(t, c)
		n := k.to("web")
		name(t, n)
		n.Close()
		k.signal(syscall.SIGHUP)
		if text := heard("RELOADING"); !strings.Contains(text, "MONOTONIC_USEC=") {
			t.Errorf("%q", text)
		}
		heard("READY")
		mustPing(t, c)
	}
	k.signal(syscall.SIGTERM)
	heard("STOPPING")
	c.Close()
	k.mustExit(0)
}
