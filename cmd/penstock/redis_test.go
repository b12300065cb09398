package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// A real client and a real server, with the relay between: once over TCP and
// once with Unix sockets on both sides.
func TestRedisBenchmark(t *testing.T) {
	for _, tool := range []string{"redis-server", "redis-benchmark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	dir := t.TempDir()
	server := filepath.Join(dir, "redis")
	port := freePort(t)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--unixsocket", server,
		"--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", server); err == nil {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("redis-server does not come up")
		}
	}

	requests, size := "10000", "20000"
	if testnet.RaceEnabled {
		requests, size = "3000", "5000"
	}
	front := filepath.Join(dir, "front")
	for name, pair := range map[string][2]string{
		"tcp":  {"tcp://127.0.0.1:0", "tcp://127.0.0.1:" + port},
		"unix": {"unix://" + front, "unix://" + server},
	} {
		t.Run(name, func(t *testing.T) {
			d := relay(t, "--log-flows=all", pair[0], pair[1])
			at := []string{"-s", front}
			if a, ok := d.addr().(*net.TCPAddr); ok {
				at = []string{"-h", a.IP.String(), "-p", fmt.Sprint(a.Port)}
			}
			for _, load := range [][]string{
				{"-t", "ping,set,get", "-c", "50"},
				{"-t", "set,get", "-c", "20", "-P", "16", "-d", size},
				{"-t", "ping", "-c", "20", "-k", "0"}, // a connection a request
			} {
				n := requests
				if load[len(load)-1] == "0" {
					n = "2000"
				}
				args := append(append(append([]string{}, at...), load...), "-n", n, "-q")
				out, err := exec.Command("redis-benchmark", args...).CombinedOutput()
				if err != nil || strings.Contains(string(out), "Error") || !strings.Contains(string(out), "requests per second") {
					t.Fatalf("redis-benchmark %v: %v\n%s", args, err, out)
				}
			}
			for _, f := range d.wait("flow", 1) {
				if c := f["cause"]; c != "end" && c != "a-reset" && c != "a-gone" { // it leaves some in mid-air at its end
					t.Errorf("%v", f)
				}
			}
		})
	}
}

// freePort finds a port that nobody listens on.
func freePort(t *testing.T) string {
	l := testnet.Listen(t, "tcp4")
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
