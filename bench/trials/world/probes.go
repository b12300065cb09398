//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// probes are single clients of these listeners, and the members behind them, each of which answers with its group's name before what it was
// sent. The model says of each client who answers, and that each message comes once.
type probes struct {
	p       *places
	probed  []*probedListener
	without []string // kinds of clients
	closes  []func() error
	serving sync.WaitGroup

	mu      sync.Mutex
	number  int
	arrived map[string]int // messages, at any member
}

// readable lets the daemon read its key, whoever it has become.
func readable(p certs.Pair) error {
	return errors.Join(os.Chmod(p.Certificate, 0o644), os.Chmod(p.Key, 0o644), os.Chmod(filepath.Dir(p.Key), 0o755))
}

// startProbes starts the members.
func (r *run) startProbes(without []string) (*probes, error) {
	v := &probes{p: &r.places, probed: r.config.Probed, without: without, arrived: map[string]int{}}
	for _, d := range v.probed {
		for group, list := range d.upstreams(v.p) {
			for _, at := range list {
				if err := v.member(group, at); err != nil {
					return v, err
				}
			}
		}
	}
	return v, nil
}

func (v *probes) close() {
	for _, f := range v.closes {
		f()
	}
	v.serving.Wait()
}

// answer notes a message, and returns the answer to it.
func (v *probes) answer(group string, message []byte) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.arrived[string(message)]++
	return append([]byte(group+" "), message...)
}

func (v *probes) member(group, at string) error {
	network, addr, _ := strings.Cut(at, "://")
	if network == "tcp" {
		l, err := net.Listen(network, addr)
		if err != nil {
			return err
		}
		v.closes = append(v.closes, l.Close)
		v.serving.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					c.SetDeadline(time.Now().Add(world.Patience))
					b := make([]byte, 256)
					if n, err := c.Read(b); err == nil {
						c.Write(v.answer(group, b[:n]))
					}
				}()
			}
		})
		return nil
	}
	c, err := net.ListenPacket(network, addr)
	if err == nil && network == "unixgram" {
		err = os.Chmod(addr, 0o666)
	}
	if err != nil {
		return err
	}
	v.closes = append(v.closes, c.Close)
	v.serving.Go(func() {
		b := make([]byte, 256)
		for {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				c.WriteTo(v.answer(group, b[:n]), from)
			}
		}
	})
	return nil
}

// next returns a message that nobody has sent.
func (v *probes) next() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.number++
	return fmt.Sprint("message ", v.number)
}

// all has clients of each kind come to each of them.
func (v *probes) all(fault func(string, ...any), after string) {
	for _, d := range v.probed {
		for _, kind := range d.clients() {
			if slices.Contains(v.without, kind) {
				continue
			}
			// Whoever comes while a worker dies may not be served: what holds is that it is, in the end.
			var err error
			if proc.Until("served", world.Patience, 50*time.Millisecond, func() error { err = v.try(d, kind); return lost(err) }) != nil || err != nil {
				fault("after %s: a client (%s) of the listener %s: %v", after, kind, d.Kind, err)
				return
			}
		}
	}
}

// errWrong is the error of a client that was served otherwise than the model says.
var errWrong = errors.New("wrong")

// lost returns err if asking again may help.
func lost(err error) error {
	if errors.Is(err, errWrong) {
		return nil
	}
	return err
}

// clients are the kinds of clients that a listener can have.
func (d *probedListener) clients() []string {
	switch d.Kind {
	case "gram":
		return []string{"path", "abstract", "autobound"}
	case "wide":
		return []string{"unicast", "broadcast"}
	case "udp", "tcp":
		return []string{"unicast"}
	}
	return []string{"", "h2", "http/1.1", "h2,http/1.1", "http/1.1,h2"}
}

// visit is one client.
func (v *probes) try(d *probedListener, kind string) error {
	if d.Kind == "tcp" || d.Kind == "tls" {
		return v.stream(d, kind)
	}
	c, to, err := v.socket(d, kind)
	if err != nil {
		return err
	}
	if d.Kind == "gram" {
		defer c.Close()
	} else {
		v.keep(c)
	}
	message := v.next()
	if err := v.exchange(c, to, message, d.group("")); err != nil {
		return err
	}
	// What the message may have caused besides has arrived once one after it has.
	end := v.next()
	if err := v.exchange(c, to, end, d.group("")); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := v.arrived[message] + v.arrived[end]; n != 2 {
		return fmt.Errorf("%w: 2 messages came to members %d times", errWrong, n)
	}
	return nil
}

// keep has a socket stay open until the run ends. Who gets its port is the same client to the daemon that had a flow of it, and ends with that daemon's drain.
func (v *probes) keep(c net.PacketConn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closes = append(v.closes, c.Close)
}

// socket returns a client's socket, and where it sends to.
func (v *probes) socket(d *probedListener, kind string) (net.PacketConn, net.Addr, error) {
	if d.Kind != "gram" {
		to, err := net.ResolveUDPAddr("udp", d.addr(v.p))
		if err == nil && kind == "broadcast" {
			to.IP = net.IPv4(127, 255, 255, 255)
		}
		if err != nil {
			return nil, nil, err
		}
		c, err := net.ListenUDP("udp4", nil) // package net lets it broadcast
		return c, to, err
	}
	to := &net.UnixAddr{Net: "unixgram", Name: d.addr(v.p)}
	name := ""
	switch kind {
	case "path":
		name = filepath.Join(v.p.dir, strings.ReplaceAll(v.next(), " ", "-"))
	case "abstract":
		name = "\x00" + v.p.dir + v.next()
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	if name != "" && name[0] == 0 {
		name = "@" + name[1:]
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil { // without a name the kernel gives one
		return nil, nil, err
	}
	if kind == "path" {
		if err := os.Chmod(name, 0o666); err != nil {
			return nil, nil, err
		}
	}
	c, err := net.FilePacketConn(f)
	return c, to, err
}

// exchange sends a message, and waits for its answer, which is that of a group.
func (v *probes) exchange(c net.PacketConn, to net.Addr, message, group string) error {
	if _, err := c.WriteTo([]byte(message), to); err != nil {
		return err
	}
	b := make([]byte, 256)
	c.SetReadDeadline(time.Now().Add(time.Second))
	n, _, err := c.ReadFrom(b)
	switch {
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case string(b[:n]) == group+" "+message:
		return nil
	case !bytes.Contains(b[:n], []byte(" message ")) || bytes.HasSuffix(b[:n], []byte(" "+message)):
		return fmt.Errorf("%w: answered by %q", errWrong, b[:n])
	}
	// An answer to the message before: it came to more than one member, or more than once.
	return fmt.Errorf("%w: answered twice: %q", errWrong, b[:n])
}

// stream is a client of a stream.
func (v *probes) stream(d *probedListener, offers string) error {
	if d.Kind == "tls" {
		return v.secured(d, offers)
	}
	c, err := net.DialTimeout("tcp", d.addr(v.p), world.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(world.Patience))
	got, err := ask(c, v.next())
	if err == nil && got != d.group("") {
		err = fmt.Errorf("%w: it was served by %q", errWrong, got)
	}
	return err
}

// ask sends a message on a stream, and returns the group of the member that has answered.
func ask(c net.Conn, message string) (group string, err error) {
	if _, err := c.Write([]byte(message)); err != nil {
		return "", err
	}
	b := make([]byte, 256)
	n, err := c.Read(b)
	if err != nil {
		return "", err
	}
	group, whole := strings.CutSuffix(string(b[:n]), " "+message)
	if !whole {
		return "", fmt.Errorf("%w: %q is the answer to %q", errWrong, b[:n], message)
	}
	return group, nil
}

// secured is a client with TLS. The route is that of the protocol that both have agreed on.
func (v *probes) secured(d *probedListener, offers string) error {
	config := &tls.Config{InsecureSkipVerify: true, ServerName: certs.Name}
	if offers != "" {
		config.NextProtos = strings.Split(offers, ",")
	}
	if len(config.NextProtos) > 0 && len(d.Offers) > 0 && !slices.ContainsFunc(config.NextProtos, func(p string) bool { return slices.Contains(d.Offers, p) }) {
		return nil // the handshake fails, as it must
	}
	raw, err := net.DialTimeout("tcp", d.addr(v.p), world.Patience)
	if err != nil {
		return err
	}
	c := tls.Client(raw, config)
	defer c.Close()
	c.SetDeadline(time.Now().Add(world.Patience))
	if err := c.Handshake(); err != nil {
		return err
	}
	agreed := c.ConnectionState().NegotiatedProtocol
	group := d.group("")
	if slices.Contains(d.Routes, agreed) {
		group = d.group(agreed)
	}
	if got, err := ask(c, v.next()); err != nil {
		return err
	} else if got != group {
		return fmt.Errorf("%w: it agreed on %q and was served by a member of %s, not of %s", errWrong, agreed, got, group)
	}
	return nil
}

// cpuSet returns the CPUs that a value of the event cpus stands for: the first one, or all.
func cpuSet(which string) (set unix.CPUSet, err error) {
	if err := unix.SchedGetaffinity(0, &set); err != nil || which != "1" {
		return set, err
	}
	first := 0
	for !set.IsSet(first) {
		first++
	}
	set.Zero()
	set.Set(first)
	return set, nil
}

// onCPUs calls f, which starts a process, so that this has only some of the CPUs.
func onCPUs(which string, f func() error) error {
	if which != "1" {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := cpuSet("all")
	one, other := cpuSet(which)
	if err = errors.Join(err, other, unix.SchedSetaffinity(0, &one)); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &all)
	return f()
}

// cpus changes the CPUs that the service may use: its keeper, and the workers to come.
func (r *run) cpus(which string) error {
	set, err := cpuSet(which)
	if err != nil {
		return err
	}
	for _, pid := range proc.Tree(r.d.First()) {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, t := range tasks {
			if tid, err := strconv.Atoi(t.Name()); err == nil {
				unix.SchedSetaffinity(tid, &set) // it may have ended
			}
		}
	}
	return nil
}

// migrates reports whether the kernel passes on who waits in the queue of a listener that closes. ip-sysctl, tcp_migrate_req.
func migrates() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_migrate_req")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

// restart starts the service once more beside the one that runs, and ends that: clients are served all the time. Unix listeners have one owner,
// so that nothing happens if there are some.
func (r *run) restart() error {
	if len(r.config.Probed) == 0 || slices.ContainsFunc(r.config.Probed, func(d *probedListener) bool { return d.Kind == "gram" }) {
		return nil
	}
	r.starts++
	dir := filepath.Join(r.dir, fmt.Sprint("start", r.starts))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	r.probes.all(r.fault, "nothing")
	next, err := world.StartAt(r.binary[r.upgrades%2].Path, dir, r.admin(), r.config.text(&r.places), true)
	if err != nil {
		return err
	}
	before := r.d
	r.d = next
	ended := make(chan error, 1)
	go func() {
		code, err := before.Terminate()
		if err == nil && code != 0 && code != world.DrainedLate {
			err = fmt.Errorf("exit code %d", code)
		}
		ended <- err
	}()
	// Each try is a flow, of which a daemon has no more than its descriptors allow, and one can do thousands in a second.
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for {
		for _, d := range r.probes.probed {
			err := r.probes.try(d, d.clients()[0])
			if errors.Is(err, unix.ECONNRESET) && !migrates() { // it was in the queue of the one that closes: docs/running.md
				err = r.probes.try(d, d.clients()[0])
			}
			if err != nil {
				r.fault("while one daemon drains and its successor serves, a client of the listener %s: %v", d.Kind, err)
				return <-ended
			}
		}
		select {
		case err := <-ended:
			return err
		case <-pace.C:
		}
	}
}
