package main

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A real client and a real server, with the relay in between: once over TCP and once with Unix
// sockets on both sides.
func TestRedisBenchmark(t *testing.T) {
	need(t, "redis-server", "redis-benchmark")
	dir := t.TempDir()
	server := filepath.Join(dir, "redis")
	port := testnet.Port(t)
	startRedis(t, server, "--port", port, "--bind", "127.0.0.1")

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
				{"-t", "ping", "-c", "20", "-k", "0"}, // one connection per request
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
				if c := f["cause"]; c != "end" && c != "client-reset" && c != "client-gone" { // the client abandons some connections when it ends
					t.Errorf("%v", f)
				}
			}
		})
	}
}

// startRedis starts a server at a Unix socket, and at other addresses given in args. The returned
// function kills it.
func startRedis(t *testing.T, path string, args ...string) (kill func()) {
	t.Helper()
	args = append([]string{"--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(path)}, args...)
	cmd := exec.Command("redis-server", args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(kill)
	testwait.Until(t, "redis-server comes up", func() bool {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return kill
}

// A member is killed under load. Clients that come after that are served by the other member,
// before and after the checks notice; the member comes back with slow start.
func TestRedisMemberDies(t *testing.T) {
	need(t, "redis-server", "redis-benchmark")
	t.Parallel()
	dir := shortDir(t)
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	startRedis(t, one, "--port", "0")
	kill := startRedis(t, two, "--port", "0")
	d := runFile(t, `
listeners:
  redis: {listen: "tcp://127.0.0.1:0", to: cache}
groups:
  cache:
    balance: least-connections
    members: [{name: one, to: "unix://{0}"}, {name: two, to: "unix://{1}"}]
    slow-start: 1s
    check: {send-expect: {every: 100ms, timeout: 60s, fall: 2, rise: 2, send: "PING\r\n", expect: "+PONG"}}
`, one, two)
	members := func() []api.Member {
		g, err := d.admin.Group(d.ctx(), "cache")
		if err != nil {
			t.Fatal(err)
		}
		return g.Members
	}
	state := func(i int, want string) func() bool { return func() bool { return members()[i].State == want } }
	testwait.Until(t, "both are up", func() bool { return state(0, "up")() && state(1, "up")() })

	addr := d.at("redis").(*net.TCPAddr)
	bench := func(args ...string) {
		t.Helper()
		args = append([]string{"-h", "127.0.0.1", "-p", fmt.Sprint(addr.Port), "-q", "-n", "2000"}, args...)
		if out, err := exec.Command("redis-benchmark", args...).CombinedOutput(); err != nil || !strings.Contains(string(out), "requests per second") {
			t.Fatalf("redis-benchmark %v: %v\n%s", args, err, out)
		}
	}
	bench("-t", "set,get", "-c", "20")
	testwait.Until(t, "its flows have ended", func() bool { return members()[0].Flows == 0 && members()[1].Flows == 0 })
	for range 20 {
		mustPong(t, d.to("redis"))
	}
	if m := members(); m[0].Flows != 10 || m[1].Flows != 10 {
		t.Errorf("20 flows are with members as %d and %d", m[0].Flows, m[1].Flows)
	}

	// New connections all the time. Each records whether the member was gone when it began.
	var gone atomic.Bool
	var after atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				was := gone.Load()
				if err := ping(addr); err != nil && was {
					t.Errorf("after the member has gone: %v", err)
					return
				}
				if was {
					after.Add(1)
				}
			}
		})
	}
	t.Cleanup(load.Wait)
	halt := sync.OnceFunc(func() { close(stop) })
	t.Cleanup(halt)
	kill()
	gone.Store(true)
	testwait.Until(t, "the checks see it", state(1, "down"))
	seen := after.Load()
	testwait.Until(t, "others come", func() bool { return after.Load() > seen+200 })
	startRedis(t, two, "--port", "0")
	testwait.Until(t, "it comes back", func() bool { return !state(1, "down")() })
	testwait.Until(t, "it is up", state(1, "up"))
	began := members()[1].Begun
	testwait.Until(t, "it has new flows", func() bool { return members()[1].Begun > began+20 })
	halt()
	load.Wait()
	slow := false
	for _, l := range d.wait("member", 1) {
		slow = slow || l["member"] == "two" && l["to"] == "slow start"
	}
	if !slow {
		t.Error("it came back without slow start")
	}
}

// ping opens a connection for one command.
func ping(addr net.Addr) error {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		return err
	}
	defer c.Close()
	return pong(c)
}

func pong(c net.Conn) error {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	buf := make([]byte, 7)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "+PONG\r\n" {
		return fmt.Errorf("%q, %w", buf, err)
	}
	return nil
}

func mustPong(t *testing.T, c net.Conn) {
	t.Helper()
	if err := pong(c); err != nil {
		t.Fatal(err)
	}
}
