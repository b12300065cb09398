package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
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

// childEnv carries the order to a child process: the listener's network, the
// upstream's address and the idle time.
const childEnv = "PENSTOCK_RELAY_CHILD"

// runChild is the child's main function: an engine with one loop that relays
// until its standard input ends.
func runChild(order string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "relay child:", err)
		return 1
	}
	var network, upstream, idle string
	if _, err := fmt.Sscan(order, &network, &upstream, &idle); err != nil {
		return fail(err)
	}
	to := &Addr{Network: TCP, AddrPort: netip.MustParseAddrPort(upstream)}
	if network == "udp" {
		to.Network = UDP
	}
	d, err := time.ParseDuration(idle)
	if err != nil {
		return fail(err)
	}
	e, err := New(Config{Loops: 1})
	if err != nil {
		return fail(err)
	}
	l, err := e.Listen(Addr{Network: to.Network, AddrPort: loopback}, ListenConfig{
		Timeouts: Timeouts{Idle: d},
		Hooks: Hooks{Upstream: func(_ *Flow, attempt int) *Addr {
			if attempt > 0 {
				return nil
			}
			return to
		}},
	})
	if err != nil {
		return fail(err)
	}
	fmt.Println(l.Addr().AddrPort)
	io.Copy(io.Discard, os.Stdin)
	e.Close()
	return 0
}

// startChild starts an engine in a child process and returns the address that
// it listens on.
func startChild(t *testing.T, network string, upstream net.Addr, idle time.Duration) (*os.Process, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", fmt.Sprintf("%s=%s %s %s", childEnv, network, upstream, idle))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		stdin.Close()
		cmd.Wait()
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal("the child said no address:", err)
	}
	return cmd.Process, strings.TrimSpace(addr)
}

// whoServer is a datagram upstream that answers with the address that asked.
func whoServer(t *testing.T) net.Addr {
	t.Helper()
	s := packetSocket(t, "udp4")
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := s.ReadFrom(buf)
			if err != nil {
				return
			}
			s.WriteTo([]byte(from.String()), from)
		}
	}()
	return s.LocalAddr()
}

// The process was stopped for longer than the idle time. What came meanwhile is
// seen before the timers are, for one flow as for many more than one wait takes.
func TestGap(t *testing.T) {
	for _, c := range []struct {
		network string
		flows   int
	}{{"tcp", 1}, {"tcp", 2*256 + 10}, {"udp", 1}, {"udp", dgramRounds*dgramBatch + 10}} {
		t.Run(fmt.Sprintf("%s/flows=%d", c.network, c.flows), func(t *testing.T) {
			testnet.CheckLeaks(t)
			for idle := 300 * time.Millisecond; !gap(t, c.network, c.flows, idle); idle *= 2 {
				if idle > patience {
					t.Fatalf("this machine stops for more than %v", idle)
				}
			}
		})
	}
}

// stopped reports whether every thread of a process is stopped. proc(5), /proc/PID/task/TID/stat.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		stat, _ := os.ReadFile(name)
		_, after, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// gap stops a child for twice the idle time; false says that this machine was
// too slow to tell.
func gap(t *testing.T, network string, flows int, idle time.Duration) bool {
	var up net.Addr
	if network == "tcp" {
		up = toNet(*echoServer(t, "tcp4"))
	} else {
		up = whoServer(t)
	}
	child, addr := startChild(t, network, up, idle)
	conns := make([]net.Conn, flows)
	answers := make([]string, flows) // what each flow is answered
	buf := make([]byte, 100)
	ask := func(i int) { conns[i].Write([]byte("x")) }
	answer := func(i int) (string, error) {
		conns[i].SetReadDeadline(time.Now().Add(patience))
		n, err := conns[i].Read(buf)
		return string(buf[:n]), err
	}
	began := time.Now() // the first flow is idle while the others are dialed
	slow := func() bool { return time.Since(began) > idle/2 }
	for i := range conns {
		c, err := net.Dial(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	for i := range conns {
		ask(i)
	}
	for i := range conns {
		var err error
		if answers[i], err = answer(i); err != nil && slow() {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
	}
	child.Signal(syscall.SIGSTOP)
	testwait.Until(t, "every thread of the child is stopped", func() bool { return stopped(child.Pid) })
	for i := range conns {
		ask(i)
	}
	if slow() {
		child.Signal(syscall.SIGCONT)
		return false
	}
	time.Sleep(2 * idle)
	child.Signal(syscall.SIGCONT)
	ended := 0
	for i := range conns {
		// A datagram flow that had ended would begin again, from another port.
		if got, err := answer(i); err != nil || got != answers[i] {
			ended++
		}
	}
	if ended > 0 {
		t.Fatalf("%d of %d flows have ended", ended, flows)
	}
	return true
}
