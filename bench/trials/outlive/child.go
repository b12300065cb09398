//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/internal/testport"
)

// adopt makes this process adopt those of relays that run in the background, so that all of them can be ended, and raises the limit of
// open files.
func adopt(want uint64) (files int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("prctl: %w", err)
	}
	return proc.RaiseFiles(want)
}

// runRound runs one round.
func runRound(b *bench) (res result, err error) {
	if _, err := adopt(8192); err != nil {
		return res, err
	}
	return b.measure()
}

// A service is a relay that is started again when it has ended altogether, at once.
type service struct {
	proc.Process
	r       *relay
	s       setup
	release func() // ends the reservation of the port
}

// master returns the first process of nginx, which names it in a file.
func (v *service) master(int) int {
	// While it upgrades, only the old one has a file.
	if pid := proc.ReadPID(filepath.Join(v.s.dir, "nginx.pid")); pid != 0 {
		return pid
	}
	return proc.ReadPID(filepath.Join(v.s.dir, "nginx.pid.oldbin"))
}

// happen does what an event is.
func (v *service) happen(name string) error {
	switch name {
	case "crash":
		v.Signal(syscall.SIGKILL)
	case "ten":
		again := v.r.upgrade
		if v.r.reload != nil {
			again = v.r.reload
		}
		for range 10 {
			if err := again(v.s, v.First()); err != nil {
				return err
			}
		}
	default:
		return v.r.upgrade(v.s, v.First())
	}
	return nil
}

// measure runs the load, lets the event happen in the middle of it, and reports what became of the
// flows.
func (b *bench) measure() (res result, err error) {
	r, err := find(relays, b.Relay)
	if err != nil {
		return res, err
	}
	load, err := newLoad(b.New)
	if err != nil {
		return res, err
	}
	s := setup{bench: b, upstream: load.stream.Addr().String(), upstreamUDP: load.datagram.LocalAddr().String()}
	if b.Event == "upgrade-deadline" {
		s.deadline = b.Deadline
	}
	v, err := r.begin(&s)
	if err != nil {
		return res, err
	}
	defer func() { err = v.end(err) }()
	datagrams := 0
	if r.udp {
		datagrams = b.UDP
	}
	if err := load.begin(s.listen, b.TCP, datagrams); err != nil {
		return res, err
	}
	time.Sleep(b.Settle)
	before := v.Tree()
	load.mark()
	if err := v.happen(b.Event); err != nil {
		return res, err
	}
	took := time.Since(load.marked)
	time.Sleep(b.Watch)
	after := v.Tree()
	memory, memErr := proc.RSS(after)
	res = load.end()
	res.Took = took
	res.Starts = int(v.Begun())
	res.ProcessesBefore, res.Processes = len(before), len(after)
	if memErr == nil {
		res.Memory = memory
	}
	return res, nil
}

// begin starts a relay in a folder of its own, and returns when it listens.
func (r *relay) begin(s *setup) (v *service, err error) {
	v = &service{r: r}
	if s.dir, err = os.MkdirTemp("", "outlive"); err != nil {
		return nil, err
	}
	v.s = *s
	defer func() {
		if err != nil {
			err = v.end(err)
		}
	}()
	if s.listen == "" {
		port, release, err := testport.Reserve()
		if err != nil {
			return v, err
		}
		v.release = release
		s.listen = net.JoinHostPort("127.0.7.1", port) // no connection of the load, or of the relay, has this IP address as the local one
	}
	v.s = *s
	for name, text := range r.files(*s) {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			return v, err
		}
	}
	v.Argv, v.Dir, v.Again, v.Start = r.argv(*s), s.dir, true, s.start
	v.All = func() []int { return proc.Tree(os.Getpid())[1:] }
	if r.name == "nginx" {
		v.Main = v.master
	}
	if err := v.Begin(); err != nil {
		return v, err
	}
	return v, proc.Wait(r.name+" to listen", patience, func() bool {
		c, err := net.Dial("tcp", s.listen)
		if err == nil {
			c.Close()
		}
		return err == nil && v.First() != 0
	})
}

// end ends the relay. It adds what the relay has printed to an error.
func (v *service) end(err error) error {
	v.Kill()
	if err != nil {
		err = fmt.Errorf("%w; it printed: %s", err, v.Printed())
	}
	if v.release != nil {
		v.release()
	}
	os.RemoveAll(v.s.dir)
	return err
}
