package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testcost"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// costs is a daemon whose loop makes a turn only when a test says so, and whose system calls are counted.
type costs struct {
	t     *testing.T
	trace *testkernel.Trace
	port  string // its listener's, at 127.0.0.1
}

// traceRelay starts penstock relay with one loop and these flags between a listener and an upstream, both of a scheme.
func traceRelay(t *testing.T, scheme string, upstream net.Addr, flags ...string) *costs {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("system calls have other numbers and arguments")
	}
	k := &costs{t: t, port: testnet.Port(t)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	argv := append([]string{binary, "relay", "--loops=1"}, flags...)
	argv = append(argv, scheme+"://127.0.0.1:"+k.port, scheme+"://"+upstream.String())
	// Neither the collector nor the scheduler interrupts a call of the loop with a signal.
	env := append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=2", "GORACE=atexit_sleep_ms=0")
	k.trace, err = testkernel.StartTrace(argv, env, null, w, w)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	ready := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		var all strings.Builder
		for in := bufio.NewScanner(r); in.Scan(); {
			fmt.Fprintln(&all, in.Text())
			if strings.Contains(in.Text(), `"msg":"ready"`) {
				ready <- ""
			}
		}
		ready <- all.String()
	}()
	t.Cleanup(func() {
		k.trace.Kill()
		<-read
		r.Close()
	})
	select {
	case text := <-ready:
		if text != "" {
			t.Fatalf("the daemon has ended:\n%s", text)
		}
	case <-time.After(patience):
		t.Fatal("the daemon does not become ready")
	}
	if err := k.trace.Hold(); err != nil {
		t.Fatal(err)
	}
	k.idle()
	return k
}

// idle waits until the loop has nothing to do.
func (k *costs) idle() {
	k.t.Helper()
	if err := k.trace.Idle(patience); err != nil {
		k.t.Fatal(err)
	}
}

// turn lets the loop do all that there is to do.
func (k *costs) turn() {
	k.t.Helper()
	k.trace.Run()
	k.idle()
}

// inTime returns a connection of which the next call has its time: on a busy machine an exchange can take longer than any one of its waits.
func inTime[C net.Conn](c C) C {
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// samples is how often an exchange is counted. All counts should be equal; the median keeps a packet that
// the kernel was late with out.
const samples = 5

// mostDisturbed is how many exchanges may be counted in vain.
const mostDisturbed = 100

// count returns the calls of an exchange, after others that let grow what grows once.
func (k *costs) count(warm int, exchange func()) testkernel.Calls {
	k.t.Helper()
	for range warm {
		exchange()
	}
	k.trace.Take()
	var all []testkernel.Calls
	for disturbed := 0; len(all) < samples; {
		exchange()
		c := k.trace.Take()
		if c.Disturb == "" {
			all = append(all, c)
		} else if disturbed++; disturbed > mostDisturbed {
			k.t.Fatalf("%d exchanges were disturbed: %s", disturbed, c.Disturb)
		}
	}
	slices.SortFunc(all, func(a, b testkernel.Calls) int { return a.All() - b.All() })
	for _, c := range all {
		k.t.Logf("%d system calls, %d of them data calls, %d wake-ups: %v", c.All(), c.Data, c.Wakeups, &c)
	}
	return all[samples/2]
}

// A kernelSocket is what /proc/net has of a socket, proc_net_tcp.rst.
type kernelSocket struct {
	state  int // include/net/tcp_states.h
	queued int // TCP: bytes; UDP: memory
}

const (
	tcpTimeWait  = 6
	tcpCloseWait = 8
)

// socket returns what the kernel has of the socket with these ports; a remote port 0 is that of no connection.
func (k *costs) socket(table, local, remote string) (s kernelSocket, ok bool) {
	text, err := os.ReadFile("/proc/net/" + table)
	if err != nil {
		k.t.Fatal(err)
	}
	hex := func(port string) string {
		n, _ := strconv.Atoi(port)
		return fmt.Sprintf(":%04X", n)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasSuffix(f[1], hex(local)) || !strings.HasSuffix(f[2], hex(remote)) {
			continue
		}
		_, rx, _ := strings.Cut(f[4], ":")
		state, _ := strconv.ParseInt(f[3], 16, 32)
		queued, _ := strconv.ParseInt(rx, 16, 64)
		return kernelSocket{int(state), int(queued)}, true
	}
	return s, false
}

// queued waits until n bytes wait in a TCP socket of the relay.
func (k *costs) queued(local, remote string, n int) {
	k.t.Helper()
	testwait.Until(k.t, fmt.Sprintf("%d bytes have arrived", n), func() bool {
		s, _ := k.socket("tcp", local, remote)
		return s.queued == n
	})
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

// checkCosts compares the calls of an exchange with the table.
func checkCosts(t *testing.T, exchange string, c *testkernel.Calls) {
	t.Helper()
	testcost.Check(t, exchange, "system calls", int64(c.All()))
	testcost.Check(t, exchange, "data calls", int64(c.Data))
	testcost.Check(t, exchange, "wake-ups", int64(c.Wakeups))
}
