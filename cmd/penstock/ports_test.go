package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// ownAddr returns an address of the loopback network that no other process of the tests uses, so
// that all its ports are free.
func ownAddr(n int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 128+pid>>8%64, pid%256, n)
}

// speakPorts listens on a range of ports of an address, for streams and datagrams. Each client is told the port, and
// then gets back what it sends.
func speakPorts(t *testing.T, host string, first, last int) {
	t.Helper()
	for port := first; port <= last; port++ {
		at := net.JoinHostPort(host, fmt.Sprint(port))
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{}, 2)
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					fmt.Fprintf(c, "port %d\n", port)
					io.Copy(c, c)
				}()
			}
		}()
		go func() {
			defer func() { done <- struct{}{} }()
			b := make([]byte, 2048)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				pc.WriteTo(fmt.Appendf(nil, "port %d: %s", port, b[:n]), from)
			}
		}()
		t.Cleanup(func() {
			l.Close()
			pc.Close()
			<-done
			<-done
		})
	}
}

// Ranges of ports: the client of each port is at the port of the member with the same offset, for
// streams and datagrams. A reload that changes a range binds only what is new, and ends no flow.
func TestPortRanges(t *testing.T) {
	t.Parallel()
	const first, ports = 21000, 8
	here, there := ownAddr(1), ownAddr(2)
	speakPorts(t, there, first, first+2*ports-1)
	speakPorts(t, there, first+5000, first+5000+ports-1)
	text := func(last int) string {
		return fmt.Sprintf(`
listeners:
  same: {listen: "tcp://%[1]s:%[3]d-%[4]d", to: "tcp://%[2]s:%[3]d-%[4]d"}
  offset: {listen: "udp://%[1]s:%[3]d-%[5]d", to: "udp://%[2]s:%[6]d-%[7]d"}
  one: {listen: "tcp://%[1]s:%[8]d-%[9]d", to: "tcp://%[2]s:%[3]d"}
`, here, there, first, last, first+ports-1, first+5000, first+5000+ports-1, first+100, first+101)
	}
	c := runFile(t, text(first+ports-1))
	dial := func(port int) (net.Conn, *bufio.Reader, string) {
		t.Helper()
		conn, err := net.Dial("tcp", net.JoinHostPort(here, fmt.Sprint(port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(patience))
		r := bufio.NewReader(conn)
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return conn, r, strings.TrimSpace(line)
	}
	mustEcho := func(conn net.Conn, r *bufio.Reader, text string) {
		t.Helper()
		io.WriteString(conn, text+"\n")
		if line, err := r.ReadString('\n'); err != nil || line != text+"\n" {
			t.Errorf("%q, %v, want %q", line, err, text)
		}
	}
	for i := range ports {
		if _, _, got := dial(first + i); got != fmt.Sprint("port ", first+i) {
			t.Errorf("the client of port %d is at %s", first+i, got)
		}
		u := testnet.Dial(t, &net.UDPAddr{IP: net.ParseIP(here), Port: first + i})
		u.SetDeadline(time.Now().Add(patience))
		for n := range 2 {
			fmt.Fprintf(u, "%d.%d", i, n)
			b := make([]byte, 100)
			got, err := u.Read(b)
			if want := fmt.Sprintf("port %d: %d.%d", first+5000+i, i, n); err != nil || string(b[:got]) != want {
				t.Errorf("%q, %v, want %q", b[:got], err, want)
			}
		}
	}
	for i := range 2 {
		if _, _, got := dial(first + 100 + i); got != fmt.Sprint("port ", first) {
			t.Errorf("the client of one is at %s", got)
		}
	}

	l, err := c.admin.Listeners(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Listeners[0].Address, fmt.Sprintf("tcp://%s:%d-%d", here, first, first+ports-1); got != want || l.Listeners[0].Begun != ports {
		t.Errorf("listener at %s with %d flows, want %s with %d", got, l.Listeners[0].Begun, want, ports)
	}
	g, err := c.admin.Groups(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := g.Groups[0].Members[0].Address, fmt.Sprintf("tcp://%s:%d-%d", there, first, first+ports-1); got != want {
		t.Errorf("member at %s, want %s", got, want)
	}

	// Flows outlive a longer range, and a shorter one.
	conn, r, _ := dial(first + 3)
	last, lastReader, _ := dial(first + ports - 1)
	c.write(t, text(first+2*ports-1))
	c.reload()
	for _, i := range []int{0, 3, ports, 2*ports - 1} {
		if _, _, got := dial(first + i); got != fmt.Sprint("port ", first+i) {
			t.Errorf("after the reload the client of port %d is at %s", first+i, got)
		}
	}
	mustEcho(conn, r, "longer")
	c.write(t, text(first+ports/2-1))
	c.reload()
	mustEcho(conn, r, "shorter")
	mustEcho(last, lastReader, "its port is gone")
	if conn, err := net.Dial("tcp", net.JoinHostPort(here, fmt.Sprint(first+ports))); err == nil {
		conn.Close()
		t.Error("a port that is gone takes a client")
	}
	if _, _, got := dial(first + 1); got != fmt.Sprint("port ", first+1) {
		t.Errorf("the client is at %s", got)
	}
}

// A range that needs more descriptors than there may be is refused at once, with what to do.
func TestPortRangeDescriptors(t *testing.T) {
	t.Parallel()
	drop := "" // with CAP_SYS_RESOURCE the daemon would raise the limit again
	if os.Geteuid() == 0 {
		need(t, "setpriv")
		drop = "setpriv --reuid=65534 --regid=65534 --clear-groups "
	}
	script := fmt.Sprintf(`ulimit -n 4096; exec %s"$0" relay --loops=2 --log-format=json tcp://%s:20000-29999 echo:`, drop, ownAddr(3))
	out, err := exec.Command("sh", "-c", script, binary).CombinedOutput()
	var exit *exec.ExitError
	const want = "10000 ports of listeners need 20000 descriptors (one per port and loop), more than half of the limit of 4096; allowed: a limit of at least 40000"
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
		t.Errorf("%v, %s", err, out)
	}
}
