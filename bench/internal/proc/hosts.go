//go:build linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Place says where a measurement or a trial runs. The zero value is a fresh network namespace with the machine's congestion
// control, on all CPUs.
type Place struct {
	Host       bool   // in the machine's own network namespace
	Veth       bool   // client, relay and upstream in three namespaces, linked by pairs of veth devices
	Congestion string // the TCP congestion control of a fresh namespace: see newNamespace
	CPUs       string // a list such as 0 or 0,1; "": all
}

// Run runs f there, on a thread of its own; processes that f starts stay there.
func (p Place) Run(f func(*Hosts) error) error {
	pinned := func(h *Hosts) error {
		if p.CPUs != "" {
			if err := Pin(p.CPUs); err != nil {
				return err
			}
		}
		return f(h)
	}
	if p.Veth && !p.Host {
		return wired(p.Congestion, pinned)
	}
	return onThread(func() error {
		if !p.Host {
			if err := newNamespace(p.Congestion); err != nil {
				return err
			}
		}
		return pinned(oneHost)
	})
}

// Hosts is where the three ends of a measurement run: the client, the relay and the upstream.
type Hosts struct {
	Relay    string // the address at which clients reach the relay
	Upstream string // the address at which the relay reaches the upstream

	client, relay, upstream *os.File // network namespaces; nil: all are in that of the thread
}

// oneHost has everything in one network namespace, over the loopback device.
var oneHost = &Hosts{Relay: "127.0.0.1", Upstream: "127.0.0.1"}

// wired runs f on a thread in a new network namespace that stands for the relay's host. Two more are linked to it, each by a
// pair of veth devices (veth(4)): the client's and the upstream's. Unlike over loopback, segments have the size of an Ethernet
// frame, or what GSO makes of them, and each packet crosses a device. Processes that f starts run on the relay's host, those
// started within OnClient and OnUpstream on the other two. It needs ip(8). The congestion control is that of newNamespace.
func wired(congestion string, f func(*Hosts) error) error {
	h := &Hosts{Relay: "10.64.1.2", Upstream: "10.64.2.1"}
	defer h.close()
	return onThread(func() (err error) {
		for _, ns := range []**os.File{&h.client, &h.upstream, &h.relay} { // the thread stays in the last one
			if err := newNamespace(congestion); err != nil {
				return err
			}
			if *ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
				return err
			}
		}
		if err := errors.Join(h.link(h.client, "client", "10.64.1.1", h.Relay), h.link(h.upstream, "upstream", h.Upstream, "10.64.2.2")); err != nil {
			return err
		}
		return f(h)
	})
}

// link connects another namespace with the relay's, in which the thread is.
func (h *Hosts) link(other *os.File, name, address, relay string) error {
	return errors.Join(
		IP(fmt.Sprintf("link add %s type veth peer name relay netns /proc/%d/fd/%d", name, os.Getpid(), other.Fd()), "address add "+relay+"/24 dev "+name, "link set "+name+" up"),
		h.within(other, func() error { return IP("address add "+address+"/24 dev relay", "link set relay up") }),
	)
}

// OnClient runs f on the client's host.
func (h *Hosts) OnClient(f func() error) error { return h.within(h.client, f) }

// OnUpstream runs f on the upstream's host.
func (h *Hosts) OnUpstream(f func() error) error { return h.within(h.upstream, f) }

// Start starts a command on the relay's host, from any goroutine.
func (h *Hosts) Start(cmd *exec.Cmd) error {
	return onThread(func() error { return h.within(h.relay, cmd.Start) })
}

// within runs f in a namespace, and returns to the relay's.
func (h *Hosts) within(ns *os.File, f func() error) error {
	if ns == nil {
		return f()
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	err := f()
	return errors.Join(err, unix.Setns(int(h.relay.Fd()), unix.CLONE_NEWNET))
}

func (h *Hosts) close() {
	for _, ns := range []*os.File{h.client, h.relay, h.upstream} {
		if ns != nil {
			ns.Close()
		}
	}
}

// IP runs ip(8) with each line as its arguments, up to the first that fails.
func IP(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
