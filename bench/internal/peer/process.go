//go:build linux

package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// Process is a running relay.
type Process struct {
	proc.Process
	PID int // of the first of its processes
}

// starts is how often a program is started that ends before it is ready. HAProxy did so twice within a second in one check of
// hundreds, and what it had to say was switched off.
const starts = 3

// errEnded is the cause if a program ended before it was ready.
var errEnded = errors.New("ended at once")

// Start starts the peer and returns when it accepts connections. The caller must call Stop. The
// peer runs in the network namespace of the calling thread, and dies with that thread.
func Start(p Peer, s Setup) (*Process, error) {
	for n := 1; ; n++ {
		r, err := start(p, s)
		if !errors.Is(err, errEnded) || n == starts {
			return r, err
		}
		fmt.Fprintf(os.Stderr, "%v; started again\n", err)
		time.Sleep(time.Second)
	}
}

func start(p Peer, s Setup) (*Process, error) {
	plan := p.Plan(s)
	if plan.File != "" {
		if err := os.WriteFile(plan.File, []byte(plan.Config), 0o644); err != nil {
			return nil, err
		}
	}
	r := &Process{Process: proc.Process{Argv: plan.Argv, Dir: s.Dir, Attr: syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}}
	os.Remove(filepath.Join(s.Dir, "output")) // of the relay before
	if err := r.Begin(); err != nil {
		return nil, err
	}
	if err := r.ready(p, s); err != nil {
		r.Stop()
		return nil, err
	}
	r.PID = r.First()
	return r, nil
}

// ready waits until the relay accepts connections or, for datagrams, until its port is bound.
func (r *Process) ready(p Peer, s Setup) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := r.Failed(); err != nil {
			return fmt.Errorf("%s %w: %w\n%s", p.Name, errEnded, err, r.Printed())
		}
		if s.UDP {
			if bound(s.Listen) {
				return nil
			}
		} else if c, err := net.Dial("tcp", s.Listen); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("%s does not listen on %s after 30 s", p.Name, s.Listen)
}

// bound reports whether a UDP socket in the calling thread's network namespace has the port of
// addr. proc_pid_net(5), udp.
func bound(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	b, err := os.ReadFile("/proc/thread-self/net/udp")
	return err == nil && strings.Contains(string(b), fmt.Sprintf(":%04X 00000000:0000", ap.Port()))
}

// Stop stops the relay, first with SIGTERM, and returns what it printed.
func (r *Process) Stop() string {
	r.Process.Stop(300 * time.Millisecond)
	return r.Printed()
}
