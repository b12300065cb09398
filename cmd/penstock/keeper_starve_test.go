package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// runKeeperTo starts penstock run with a keeper whose standard error stream is a file, and waits until its
// API answers.
func runKeeperTo(t *testing.T, stderr *os.File, env ...string) *kept {
	t.Helper()
	dir := shortDir(t)
	c := &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}
	c.write(t, "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nkeeper: {keep-after: 0, max-restart-delay: 100ms}\n")
	cmd := exec.Command(binary, "run", "-c", c.file)
	cmd.Stderr = stderr
	cmd.Env = append(cmd.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.daemon = &daemon{t: t, cmd: cmd}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	k := &kept{configured: c}
	k.endWorker(t)
	var err error
	if c.admin, err = api.NewClient("unix://"+dir+"/admin.sock", ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.admin.Close)
	testwait.Until(t, "the API answers", k.answers)
	return k
}

// mustOutlive kills the worker several times.
func (k *kept) mustOutlive() {
	k.t.Helper()
	c := testnet.Dial(k.t, k.at("tcp"))
	mustPing(k.t, c)
	k.holds(1)
	for n := range int64(3) {
		k.end(syscall.SIGKILL)
		mustPing(k.t, c)
		k.started(n + 1)
	}
}

// fullPipe returns the end of a pipe that takes nothing more, and the other end, which is not read.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	w.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := w.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return r, w
}

// A keeper does not wait for whoever reads its log.
func TestKeeperLogIsNotRead(t *testing.T) {
	t.Parallel()
	_, w := fullPipe(t)
	runKeeperTo(t, w).mustOutlive()
}

// A keeper does not end because whoever reads its log has gone.
func TestKeeperLogReaderIsGone(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k := runKeeperTo(t, w)
	w.Close()
	r.Close()
	k.mustOutlive()
}

// A keeper does not wait for a service manager that is busy.
func TestKeeperManagerIsBusy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "notify")
	manager, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	// It takes nothing more from anybody.
	c, err := net.Dial("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	for err == nil {
		_, err = c.Write([]byte("STATUS=busy"))
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	runKeeperTo(t, null, "NOTIFY_SOCKET="+path).mustOutlive()
}

// The keeper is the process that the service manager watches, also after it was upgraded.
func TestKeeperWatchdog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "notify")
	manager, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	dir := shortDir(t)
	k := &kept{configured: &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}}
	k.write(t, "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nkeeper: {keep-after: 0, healthy-after: 0}\n")
	k.begin(t, exec.Command("sh", "-c", `WATCHDOG_PID=$$ WATCHDOG_USEC=200000 NOTIFY_SOCKET="$1" exec "$0" run -c "$2"`, binary, path, k.file))
	k.endWorker(t)
	pinged := func() {
		t.Helper()
		buf := make([]byte, 4096)
		for n := 0; n < 3; {
			manager.SetReadDeadline(time.Now().Add(patience))
			m, _, err := manager.ReadFrom(buf)
			if err != nil {
				t.Fatal("no ping: ", err)
			}
			if strings.Contains(string(buf[:m]), "WATCHDOG=1") {
				n++
			}
		}
	}
	pinged()
	testwait.Until(t, "the API answers", k.answers)
	if env, err := os.ReadFile("/proc/" + strconv.Itoa(k.worker()) + "/environ"); err != nil || strings.Contains(string(env), "WATCHDOG") {
		t.Errorf("the worker is told about the watchdog: %v", err)
	}
	if code, out := k.command("upgrade", "--binary", binary); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	k.executed()
	pinged()
}
