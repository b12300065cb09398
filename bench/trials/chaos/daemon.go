//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// daemon is a running penstock, with its keeper if it has one.
type daemon struct {
	*trial.Daemon
	kept bool // it has a keeper
}

// logLine is one line of the daemon's log, or of what a dying process says.
type logLine struct {
	msg   string
	attrs map[string]any
}

// options are those of the daemon's configuration.
type options struct {
	dir    string
	host   string // a loopback address that only this run uses
	keeper string // the value of the key keeper; "": none
	loops  int
	copy   bool // never splice
}

// places returns the listeners of the configuration, and its text.
func (o options) places() (all []*place, config string) {
	unixPath := func(name string) string { return filepath.Join(o.dir, name) }
	port := 20000
	next := func() string { port++; return fmt.Sprintf("%s:%d", o.host, port) }
	tcp := func(p place) *place { p.network, p.addr = "tcp", next(); return &p }
	unix := func(p place) *place { p.network, p.addr = "unix", unixPath(p.name); return &p }
	all = []*place{
		tcp(place{name: "tcp-tcp", upstream: "tcp"}),
		tcp(place{name: "tcp-unix", upstream: "unix"}),
		unix(place{name: "unix-tcp", upstream: "tcp"}),
		unix(place{name: "unix-unix", upstream: "unix"}),
		tcp(place{name: "tcp-echo", upstream: "tcp", echo: true}),
		tcp(place{name: "header-v1", upstream: "tcp", gets: 1}),
		tcp(place{name: "header-v2", upstream: "tcp", sends: 1, gets: 2}),
		tcp(place{name: "header-in", upstream: "tcp", sends: 2}),
		tcp(place{name: "limited", upstream: "tcp", slow: true}),
		{name: "udp", network: "udp", addr: next(), upstream: "udp"},
		{name: "udp-echo", network: "udp", addr: next(), upstream: "udp", echo: true},
		{name: "unixgram", network: "unixgram", addr: unixPath("unixgram"), upstream: "unixgram"},
	}
	var b strings.Builder
	pipes := 0 // the engine's default
	if o.copy {
		pipes = -1
	}
	fmt.Fprintf(&b, "engine: {loops: %d, pipes: %d}\n", o.loops, pipes)
	if o.keeper != "" {
		fmt.Fprintf(&b, "keeper: %s\n", o.keeper)
	}
	fmt.Fprintf(&b, "admin: {listen: \"unix://%s\"}\naccess-log: {to: %q}\ndrain: 5s\nlog: {format: json, flows: none}\n", unixPath("admin"), unixPath("access.log"))
	fmt.Fprintf(&b, "groups:\n  tcp: {members: [\"tcp://%s\"]}\n  v1: {members: [\"tcp://%s\"], proxy-protocol: v1}\n  v2: {members: [\"tcp://%s\"], proxy-protocol: v2}\n",
		o.upstream(0), o.upstream(1), o.upstream(2))
	fmt.Fprintf(&b, "  unix: {members: [\"unix://%s\"]}\n  udp: {members: [\"udp://%s\"]}\n  unixgram: {members: [\"unixgram://%s\"]}\n",
		unixPath("upstream"), o.upstream(0), unixPath("upstream-gram"))
	fmt.Fprintln(&b, "listeners:")
	for _, p := range all {
		at, to, more := p.network+"://"+p.addr, p.upstream, ""
		switch {
		case p.echo:
			to = `"echo:"`
		case p.gets > 0:
			to = fmt.Sprint("v", p.gets)
		}
		if p.sends > 0 {
			more += ", proxy-protocol: {from: 127.0.0.0/8}, sniff: {timeout: 5m}" // a client that has no CPU time may send its header late
		}
		if p.network == "udp" || p.network == "unixgram" {
			more += fmt.Sprintf(", timeouts: {idle: %v}", idle) // so that clients which have gone do not fill the table
		}
		if p.slow {
			more += ", limits: {bandwidth: 8MiB/s}"
		}
		fmt.Fprintf(&b, "  %s: {listen: %q, to: %s%s}\n", p.name, at, to, more)
	}
	return all, b.String()
}

// upstream returns the address of an upstream, by the version of the PROXY header that it gets.
func (o options) upstream(header int) string { return fmt.Sprintf("%s:%d", o.host, 20900+header) }

// listen starts the upstreams.
func (o options) listen(w *world) error {
	for header := range 3 {
		l, err := net.Listen("tcp", o.upstream(header))
		if err != nil {
			return err
		}
		w.serve(l, header, nil)
	}
	l, err := net.Listen("unix", filepath.Join(o.dir, "upstream"))
	if err != nil {
		return err
	}
	w.serve(l, 0, nil)
	udp, err := net.ListenPacket("udp", o.upstream(0))
	if err != nil {
		return err
	}
	udp.(*net.UDPConn).SetReadBuffer(4 << 20)
	w.serveDatagrams(udp, nil)
	gram, err := net.ListenPacket("unixgram", filepath.Join(o.dir, "upstream-gram"))
	if err != nil {
		return err
	}
	w.serveDatagrams(gram, nil)
	return nil
}

// start runs the daemon with a configuration, and returns when it is ready.
func start(binary, config string, o options) (*daemon, error) {
	process, err := trial.NewDaemon(binary, o.dir, config)
	if err != nil {
		return nil, err
	}
	d := &daemon{process, o.keeper != ""}
	d.Env = []string{"GOTRACEBACK=single"}
	d.Attr.Setpgid = true // a terminal's interrupt is for this process
	d.Timeout = 5 * time.Second
	if err := d.Begin(); err != nil {
		return nil, err
	}
	if err := d.Ready(patience); err != nil {
		d.Kill()
		return nil, err
	}
	return d, nil
}

// worker returns the process that carries the traffic: the keeper's youngest child that is alive.
func (d *daemon) worker() (int, error) {
	if !d.kept {
		return d.First(), nil
	}
	alive := slices.DeleteFunc(proc.Tree(d.First())[1:], func(pid int) bool { return !proc.Alive(pid) })
	if len(alive) == 0 {
		return 0, errors.New("the keeper has no worker")
	}
	return slices.Max(alive), nil
}

// executes reports whether a child of the keeper executes its own binary. Before, its memory is the
// keeper's, which the kernel has wait for it (vfork(2)): to stop it is to stop the keeper.
func (d *daemon) executes(pid int) bool {
	keeper, kerr := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.First()))
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return kerr == nil && err == nil && !bytes.Equal(keeper, child)
}

// killWorker sends a signal to the worker, and returns when it is dead: for SIGSTOP, when the keeper
// has had enough of it. Every flow is told.
func (d *daemon) killWorker(w *world, sig syscall.Signal) error {
	pid, err := d.worker()
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if sig == syscall.SIGSTOP && !d.executes(pid) {
		return fmt.Errorf("the worker %d does not execute its binary yet", pid)
	}
	number := w.kills.add(kill{at: time.Now(), how: sig.String()})
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return err
	}
	if err := proc.WaitDead(fd, patience); err != nil {
		return fmt.Errorf("worker %d, %v: %w", pid, sig, err)
	}
	w.died(number, time.Now())
	return nil
}

// stop ends the daemon as an operator does, and returns its exit code.
func (d *daemon) stop() (int, error) {
	code, killed := d.Stop(patience)
	if killed {
		return -1, fmt.Errorf("the daemon has not ended %v after SIGTERM", patience)
	}
	return code, nil
}

// log returns the lines of the daemon's log so far.
func (d *daemon) log() (lines []logLine) {
	f, err := os.Open(filepath.Join(d.Dir, "output"))
	if err != nil {
		return nil
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := logLine{msg: in.Text()}
		if json.Unmarshal(in.Bytes(), &line.attrs) == nil {
			line.msg, _ = line.attrs["msg"].(string)
		}
		lines = append(lines, line)
	}
	return lines
}
