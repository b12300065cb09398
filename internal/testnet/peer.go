package testnet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// peerEnv passes the order to a child process.
const peerEnv = "PENSTOCK_TESTNET_PEER"

// order tells a child what to do: to dial Addr and play Script once, or to listen there and play
// Script on each connection.
type order struct {
	Network, Addr string
	Listen        bool
	Script        Script
}

// Peer is a child process at the other end of a connection. The child is this
// test binary; it ends with its script, or when the test process ends.
type Peer struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
	wait  func() (Report, error)
}

// Start returns a connection of one of [Networks] whose other end is a child
// process that plays s. The connection is closed, and the child gone, when the
// test ends.
func Start(tb testing.TB, network string, s Script) (net.Conn, *Peer) {
	tb.Helper()
	l := listen(tb, network, anyPort)
	defer l.Close()
	p := start(tb, order{Network: l.Addr().Network(), Addr: l.Addr().String(), Script: s})
	return accept(tb, l), p
}

// StartDialer starts a child process that dials addr and plays s: a client for a
// listener that the test has made.
func StartDialer(tb testing.TB, addr net.Addr, s Script) *Peer {
	tb.Helper()
	return start(tb, order{Network: addr.Network(), Addr: addr.String(), Script: s})
}

// StartServer starts a child process that listens on one of [Networks] and plays
// s on each connection, until [Peer.Stop] or the end of the test. It returns the
// address to dial.
func StartServer(tb testing.TB, network string, s Script) (net.Addr, *Peer) {
	tb.Helper()
	at, err := newPlace(network, func() string { return Port(tb) })
	if errors.Is(err, errNoNetwork) {
		tb.Skipf("%s: %v", network, err)
	}
	if err != nil {
		tb.Fatalf("testnet: %v", err)
	}
	tb.Cleanup(at.remove)
	p := start(tb, order{Network: at.network, Addr: at.addr, Listen: true, Script: s})
	addr, err := p.out.ReadString('\n')
	if err != nil {
		tb.Fatalf("testnet: server process said no address: %v", err)
	}
	addr = strings.TrimSuffix(addr, "\n")
	if at.network == "unix" {
		return &net.UnixAddr{Net: "unix", Name: addr}, p
	}
	a, err := net.ResolveTCPAddr(at.network, addr)
	if err != nil {
		tb.Fatalf("testnet: server process said %q: %v", addr, err)
	}
	return a, p
}

// Wait waits for the script of a peer that was started with a connection, and returns its report.
// Later calls return the same.
func (p *Peer) Wait() (Report, error) { return p.wait() }

// MustWait is like [Peer.Wait], for a script that must succeed.
func (p *Peer) MustWait(tb testing.TB) Report {
	tb.Helper()
	r, err := p.Wait()
	if err != nil {
		tb.Fatalf("testnet: peer process: %v", err)
	}
	if r.Err != "" {
		tb.Fatalf("testnet: peer: %s (sent %d, received %d)", r.Err, r.Sent, r.Received)
	}
	return r
}

// Stop ends the child at once, whatever it is doing. Its sockets are closed by
// the kernel.
func (p *Peer) Stop() {
	p.cmd.Process.Kill()
	p.wait()
}

func start(tb testing.TB, o order) *Peer {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	// By default, the race detector sleeps for a second at exit.
	cmd.Env = append(os.Environ(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0", peerEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	// The child sees EOF on its standard input when this process ends, for whatever reason.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("testnet: start peer process: %v", err)
	}
	p := &Peer{cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout)}
	p.wait = sync.OnceValues(p.reap)
	tb.Cleanup(func() {
		p.stdin.Close()
		p.wait()
	})
	return p
}

func (p *Peer) reap() (r Report, err error) {
	line, rerr := p.out.ReadBytes('\n')
	err = p.cmd.Wait() // which also closes stdin and stdout
	if err == nil && rerr != nil {
		err = errors.New("no report")
	}
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	return r, err
}

// runPeer is the child's main function. It returns the exit code.
func runPeer(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, "testnet peer:", err)
		return 2
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the parent is gone, or does not need this peer any more
	}()
	if o.Listen {
		return servePeer(o)
	}
	c, err := net.DialTimeout(o.Network, o.Addr, Patience)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testnet peer:", err)
		return 1
	}
	json.NewEncoder(os.Stdout).Encode(Play(c, o.Script))
	return 0
}

func servePeer(o order) int {
	l, err := net.Listen(o.Network, o.Addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testnet peer:", err)
		return 1
	}
	fmt.Println(l.Addr())
	ended := make(chan struct{}, 1)
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "testnet peer:", err)
			<-ended // a connection, and so there is a descriptor
			continue
		}
		go func() {
			Play(c, o.Script)
			select {
			case ended <- struct{}{}:
			default:
			}
		}()
	}
}
