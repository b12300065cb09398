package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// busy opens a flow and checks that it works.
func busyFlow(t *testing.T, d *daemon) net.Conn {
	t.Helper()
	c := d.dial()
	mustPing(t, c)
	return c
}

func mustPing(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	buf := []byte("ping")
	if _, err := c.Write(buf); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "ping" {
		t.Fatalf("got %q, %v", buf, err)
	}
}

// mustEnd expects the end of the stream without further bytes, by a reset or not.
func mustEnd(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(c); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stream does not end: %q, %v", rest, err)
	}
}

func TestDrainWithNoFlows(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		d := relay(t, "tcp://127.0.0.1:0", "echo:")
		d.signal(s)
		d.mustExit(0)
		if end := d.line("ended"); end["how"] != "drained" {
			t.Errorf("%v", end)
		}
	}
}

// After the first signal no new client is admitted, existing flows continue, and the daemon exits
// with the last flow.
func TestDrain(t *testing.T) {
	d := relay(t, "--drain-timeout=1h", "--log-flows=all", "tcp://127.0.0.1:0", "echo:")
	c := busyFlow(t, d)
	d.signal(syscall.SIGTERM)
	if l := d.line("draining"); l["flows"] != 1.0 || l["deadline"] != 3600.0 {
		t.Errorf("%v", l)
	}
	testwait.Until(t, "it listens no more", func() bool {
		late, err := net.Dial("tcp", d.addr().String())
		if err == nil {
			late.Close()
		}
		return err != nil
	})
	mustPing(t, c)
	c.Close()
	d.mustExit(0)
	if flow := d.line("flow"); flow["cause"] != "end" {
		t.Errorf("%v", flow)
	}
}

func TestDrainDeadline(t *testing.T) {
	for _, timeout := range []string{"300ms", "0"} {
		d := relay(t, "--drain-timeout="+timeout, "--log-flows=all", "tcp://127.0.0.1:0", "echo:")
		c := busyFlow(t, d)
		d.signal(syscall.SIGTERM)
		d.mustExit(3)
		if flow := d.line("flow"); flow["cause"] != "drained" {
			t.Errorf("%v", flow)
		}
		mustEnd(t, c)
	}
}

func TestSecondSignal(t *testing.T) {
	d := relay(t, "--drain-timeout=1h", "--log-flows=all", "tcp://127.0.0.1:0", "echo:")
	busyFlow(t, d)
	d.signal(syscall.SIGTERM)
	d.line("draining")
	d.signal(os.Interrupt)
	d.mustExit(4)
	if flow := d.line("flow"); flow["cause"] != "closed" {
		t.Errorf("%v", flow)
	}
}

func TestUnixPathIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := relay(t, "--socket-mode=600", "unix://"+path, "echo:")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	mustEcho(t, d.dial(), 10, 10)
	d.signal(syscall.SIGTERM)
	d.mustExit(0)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A daemon that was killed leaves its socket behind; the next one replaces it.
func TestStaleUnixPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	d := relay(t, "unix://"+path, "echo:")
	d.signal(os.Kill)
	d.mustExit(-1)
	d = relay(t, "unix://"+path, "echo:")
	mustEcho(t, d.dial(), 10, 10)
	if out, code := command(t, "relay", "unix://"+path, "echo:"); code != 1 {
		t.Errorf("a socket in use was taken over: %d, %s", code, out)
	}
	mustEcho(t, d.dial(), 10, 10)
}

// If the reader of the log goes away, the relay goes on.
func TestLogReaderGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(binary, "relay", "--log-flows=all", "unix://"+path, "echo:")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := r.Read(make([]byte, 1000)); err != nil { // the ready line
		t.Fatal(err)
	}
	r.Close()
	for range 3 {
		mustEcho(t, testnet.Dial(t, &net.UnixAddr{Net: "unix", Name: path}), 10, 10)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v", err)
	}
}

// command runs penstock and returns its output and its exit code.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}
