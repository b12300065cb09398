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

// Hosts is where the three ends of a measurement run: the client, the relay and the upstream.
type Hosts struct {
	Relay    string // the address at which clients reach the relay
	Upstream string // the address at which the relay reaches the upstream

	client, relay, upstream *os.File // network namespaces; nil: all are in that of the thread
}

// OneHost has everything in one network namespace, over the loopback device.
var OneHost = &Hosts{Relay: "127.0.0.1", Upstream: "127.0.0.1"}

// Wired runs f on a thread in a new network namespace that stands for the relay's host. Two more are linked to it, each by a
// pair of veth devices (veth(4)): the client's and the upstream's. Unlike over loopback, segments have the size of an Ethernet
// frame, or what GSO makes of them, and each packet crosses a device. Processes that f starts run on the relay's host, those
// started within OnClient and OnUpstream on the other two. It needs ip(8). The congestion control is that of InNamespace.
func Wired(congestion string, f func(*Hosts) error) error {
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
		ip("link", "add", name, "type", "veth", "peer", "name", "relay", "netns", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), other.Fd())),
		ip("address", "add", relay+"/24", "dev", name),
		ip("link", "set", name, "up"),
		h.within(other, func() error {
			return errors.Join(ip("address", "add", address+"/24", "dev", "relay"), ip("link", "set", "relay", "up"))
		}),
	)
}

// OnClient runs f on the client's host.
func (h *Hosts) OnClient(f func() error) error { return h.within(h.client, f) }

// OnUpstream runs f on the upstream's host.
func (h *Hosts) OnUpstream(f func() error) error { return h.within(h.upstream, f) }

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

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
