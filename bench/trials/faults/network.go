//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/proc"
)

// Addresses of the two namespaces. Members and clients are behind the relay's gateway, not on its link:
// an address that is taken away is then silent, as behind a router, instead of unreachable.
const (
	worldIP = "10.77.0.1" // the load, DNS, syslog
	relayIP = "10.77.0.2"
)

func memberIP(i int) string { return fmt.Sprintf("10.77.1.%d", i+1) }

const (
	streamPort = 7000 // also of datagrams
	proxyPort  = 7001
	sniPort    = 7002
	adminPort  = 7003 // of nginx, whose status is HTTP
	memberPort = 9000
	syslogPort = 514
)

func relayAddr(port int) string { return fmt.Sprintf("%s:%d", relayIP, port) }

func relayAddrPort(port int) netip.AddrPort { return netip.MustParseAddrPort(relayAddr(port)) }

// A space is a network namespace. What is started by a function that runs in it is in it too.
type space struct {
	todo chan func()
	tid  int
}

// newSpace makes a namespace that has nothing but a loopback device, on a thread of its own.
func newSpace() (*space, error) {
	s := &space{todo: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: processes that it starts die with it
		s.tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		made <- err
		for f := range s.todo {
			f()
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return s, nil
}

// run runs f on the thread of the namespace.
func (s *space) run(f func() error) error {
	done := make(chan error)
	s.todo <- func() { done <- f() }
	return <-done
}

// sysctls are those of both namespaces: enough ports, and no limit of the kernel below those of relays.
func sysctls() error {
	if err := proc.SetUp(); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0)
}

// wire connects this process' namespace and the relay's: by a pair of devices, or by a link in user space.
func wire(s *space, n needs) (*link, error) {
	if err := sysctls(); err != nil {
		return nil, err
	}
	var l *link
	var err error
	if n.Lossy {
		if l, err = newLink(s); err != nil {
			return nil, err
		}
	} else if err := proc.IP("link add w0 type veth peer name r0", fmt.Sprintf("link set r0 netns %d", s.tid)); err != nil {
		return nil, err
	}
	here := []string{"addr add " + worldIP + "/24 dev w0", "link set w0 up"}
	for i := range members {
		here = append(here, "addr add "+memberIP(i)+"/32 dev lo")
	}
	if n.Wild {
		here = append(here, "route add local 10.78.0.0/16 dev lo")
	}
	if err := proc.IP(here...); err != nil {
		return nil, err
	}
	return l, s.run(func() error {
		if err := sysctls(); err != nil {
			return err
		}
		return proc.IP("addr add "+relayIP+"/24 dev r0", "link set r0 up", "route add default via "+worldIP)
	})
}
