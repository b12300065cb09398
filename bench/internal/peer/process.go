//go:build linux

package peer

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// Process is a running relay.
type Process struct {
	PID int // of the first of its processes

	name string
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
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
	r := &Process{name: p.Name, done: make(chan error, 1)}
	r.cmd = exec.Command(plan.Argv[0], plan.Argv[1:]...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	if err := r.ready(s); err != nil {
		r.Stop()
		return nil, err
	}
	r.PID = r.cmd.Process.Pid
	return r, nil
}

// ready waits until the relay accepts connections or, for datagrams, until its port is bound.
func (r *Process) ready(s Setup) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		select {
		case err := <-r.done:
			r.done <- err
			return fmt.Errorf("%s %w: %v\n%s", r.name, errEnded, err, r.out.Bytes())
		default:
		}
		if s.UDP {
			if bound(s.Listen) {
				return nil
			}
		} else if c, err := net.Dial("tcp", s.Listen); err == nil {
			return c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("%s does not listen on %s after 30 s", r.name, s.Listen)
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
	tree := proc.Tree(r.cmd.Process.Pid)
	r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.done:
	case <-time.After(300 * time.Millisecond):
		for _, pid := range tree {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		<-r.done
	}
	return r.out.String()
}
