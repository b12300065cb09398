//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Addresses of the two namespaces. Members and clients are behind the relay's gateway, not on its link:
// an address that is taken away is then silent, as behind a router, instead of unreachable.
const (
	worldIP = "10.77.0.1" // the load, DNS, syslog
	relayIP = "10.77.0.2"
)

func memberIP(i int) string { return fmt.Sprintf("10.77.1.%d", i+1) }

const (
	streamPort   = 7000 // also of datagrams
	proxyPort    = 7001
	sniPort      = 7002
	adminPort    = 7003 // of nginx, whose status is HTTP
	memberPort   = 9000
	syslogPort   = 514
	relayLinkMTU = 1500
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

// ip runs ip(8) with each line as its arguments.
func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// sysctls are those of both namespaces. Enough ports, and no limit of the kernel below those of relays.
func sysctls() error {
	for path, value := range map[string]string{
		"net/ipv4/ip_local_port_range": "1024 65535",
		"net/ipv4/tcp_max_tw_buckets":  "1048576",
		"net/core/somaxconn":           "4096",
		"net/ipv4/conf/all/rp_filter":  "0",
	} {
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// wire connects this process' namespace and the relay's: by a pair of devices, or by a link in user space.
func wire(s *space, n needs) (*link, error) {
	if err := sysctls(); err != nil {
		return nil, err
	}
	if err := ip("link set lo up"); err != nil {
		return nil, err
	}
	var l *link
	var err error
	if n.Lossy {
		if l, err = newLink(s); err != nil {
			return nil, err
		}
	} else if err := ip("link add w0 type veth peer name r0", fmt.Sprintf("link set r0 netns %d", s.tid)); err != nil {
		return nil, err
	}
	here := []string{"addr add " + worldIP + "/24 dev w0", "link set w0 up"}
	for i := range members {
		here = append(here, "addr add "+memberIP(i)+"/32 dev lo")
	}
	if n.Wild {
		here = append(here, "route add local 10.78.0.0/16 dev lo")
	}
	if err := ip(here...); err != nil {
		return nil, err
	}
	return l, s.run(func() error {
		if err := ip("link set lo up", "addr add "+relayIP+"/24 dev r0", "link set r0 up", "route add default via "+worldIP); err != nil {
			return err
		}
		return sysctls()
	})
}
