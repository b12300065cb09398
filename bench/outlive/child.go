//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/internal/testport"
)

// child runs one round and prints its result. It adopts the processes of relays that run in the
// background, and ends all of them.
func child(text string) error {
	b := &bench{}
	if err := json.Unmarshal([]byte(text), b); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	if _, err := proc.RaiseFiles(8192); err != nil {
		return err
	}
	res, err := b.measure()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}

// A service starts a relay, and starts it again when it has ended altogether, at once.
type service struct {
	r       *relay
	s       setup
	release func() // ends the reservation of the port
	out     *os.File
	stopped atomic.Bool
	begun   atomic.Int64 // starts
	first   atomic.Int64 // what was started last
}

func (v *service) start() error {
	argv := v.r.argv(v.s)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = v.out, v.out
	if err := cmd.Start(); err != nil {
		return err
	}
	v.begun.Add(1)
	v.first.Store(int64(cmd.Process.Pid))
	go func() {
		cmd.Wait()
		for v.main() != 0 { // nginx goes to the background
			time.Sleep(time.Millisecond)
		}
		if !v.stopped.Load() {
			v.start()
		}
	}()
	return nil
}

// main returns the first process of the relay, which nginx names in a file, or 0 if it has ended.
func (v *service) main() int {
	pid := int(v.first.Load())
	if v.r.name == "nginx" {
		// While it upgrades, only the old one has a file.
		if pid = readPID(filepath.Join(v.s.dir, "nginx.pid")); pid == 0 {
			pid = readPID(filepath.Join(v.s.dir, "nginx.pid.oldbin"))
		}
	}
	if pid == 0 || zombie(pid) {
		return 0
	}
	return pid
}

// all returns all processes of the relay, including those that linger.
func (v *service) all() []int {
	return slices.DeleteFunc(proc.Tree(os.Getpid())[1:], zombie)
}

// zombie reports whether a process has ended, and only waits for somebody to ask how.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	i := strings.LastIndex(string(text), ") ")
	return i < 0 || text[i+2] == 'Z'
}

func (v *service) stop() {
	v.stopped.Store(true)
	for len(v.all()) > 0 {
		for _, pid := range v.all() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// crash kills what carries traffic: the children of the first process, or that process if it is the
// only one.
func (v *service) crash() {
	tree := proc.Tree(v.main())
	if len(tree) > 1 {
		tree = tree[1:]
	}
	for _, pid := range tree {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// happen does what an event is.
func (v *service) happen(name string) error {
	switch name {
	case "crash":
		v.crash()
	case "ten":
		again := v.r.upgrade
		if v.r.reload != nil {
			again = v.r.reload
		}
		for range 10 {
			if err := again(v.s, v.main()); err != nil {
				return err
			}
		}
	default:
		return v.r.upgrade(v.s, v.main())
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
	up, err := newUpstream()
	if err != nil {
		return res, err
	}
	s := setup{bench: b, upstream: up.stream.Addr().String(), upstreamUDP: up.datagram.LocalAddr().String()}
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
	load := newLoad(s.listen)
	if err := load.begin(b.TCP, datagrams, b.New); err != nil {
		return res, err
	}
	if err := load.established(); err != nil {
		return res, err
	}
	time.Sleep(b.Settle)
	before := v.all()
	load.mark()
	if err := v.happen(b.Event); err != nil {
		return res, err
	}
	took := load.sinceMark()
	time.Sleep(b.Watch)
	after := v.all()
	memory, memErr := proc.RSS(after)
	res = load.end()
	res.Took = took
	res.Starts = int(v.begun.Load())
	res.ProcessesBefore, res.Processes = len(before), len(after)
	if memErr == nil {
		res.Memory = memory
	}
	return res, nil
}

// begin starts a relay in a folder of its own, and returns when it listens.
func (r *relay) begin(s *setup) (v *service, err error) {
	if s.dir, err = os.MkdirTemp("", "outlive"); err != nil {
		return nil, err
	}
	v = &service{r: r, s: *s}
	defer func() {
		if err != nil {
			err = v.end(err)
		}
	}()
	port, release, err := testport.Reserve()
	if err != nil {
		return v, err
	}
	v.release = release
	s.listen = net.JoinHostPort("127.0.7.1", port) // no connection of the load, or of the relay, has this IP address as the local one
	for name, text := range r.files(*s) {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
			return v, err
		}
	}
	v.s = *s
	if v.out, err = os.Create(filepath.Join(s.dir, "output")); err != nil {
		return v, err
	}
	if err := v.start(); err != nil {
		return v, err
	}
	return v, wait(r.name+" to listen", func() bool {
		c, err := net.Dial("tcp", s.listen)
		if err == nil {
			c.Close()
		}
		return err == nil && v.main() != 0
	})
}

// end ends the relay. It adds what the relay has printed to an error.
func (v *service) end(err error) error {
	v.stop()
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(v.s.dir, "output"))
		more, _ := os.ReadFile(filepath.Join(v.s.dir, "error.log"))
		err = fmt.Errorf("%w; it printed: %.2000s%.2000s", err, text, more)
	}
	if v.out != nil {
		v.out.Close()
	}
	if v.release != nil {
		v.release()
	}
	if v.s.dir != "" {
		os.RemoveAll(v.s.dir)
	}
	return err
}
