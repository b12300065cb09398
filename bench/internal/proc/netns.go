//go:build linux

package proc

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctls are set in a fresh namespace. 60,000 ports and an ample number of TIME_WAIT sockets keep
// a load of short connections from reaching either limit within a run.
var sysctls = []struct{ path, value string }{
	{"/proc/sys/net/ipv4/ip_local_port_range", "1024 65535"},
	{"/proc/sys/net/ipv4/tcp_max_tw_buckets", "1048576"},
	{"/proc/sys/net/core/somaxconn", "4096"},
}

const congestionFile = "/proc/sys/net/ipv4/tcp_congestion_control"

// newNamespace moves the thread into a new network namespace, which it is alone in, with only a loopback
// device and the given TCP congestion control; processes that it starts run there too. The
// namespace, its TIME_WAIT sockets and its ports disappear with the last process in it, so that no
// measurement inherits them from the one before.
//
// An empty congestion control means the machine's. A namespace may only use those in
// net.ipv4.tcp_allowed_congestion_control, which always include reno.
func newNamespace(congestion string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	if err := SetUp(); err != nil {
		return err
	}
	if congestion == "" {
		return nil
	}
	return os.WriteFile(congestionFile, []byte(congestion), 0)
}

// SetUp brings up the loopback device of the calling thread's namespace, which is fresh, and sets its sysctls.
func SetUp() error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up the loopback device: %w", err)
	}
	for _, s := range sysctls {
		if err := os.WriteFile(s.path, []byte(s.value), 0); err != nil {
			return err
		}
	}
	return nil
}

// Congestion returns the TCP congestion control of the calling thread's
// namespace.
func Congestion() (string, error) {
	b, err := os.ReadFile(congestionFile)
	return strings.TrimSpace(string(b)), err
}

// onThread runs f on a thread that nothing else runs on, before or after.
func onThread(f func() error) error {
	errc := make(chan error, 1)
	go func() {
		// The thread stays locked, so that it dies with the goroutine, and its namespace and
		// affinity with it.
		runtime.LockOSThread()
		errc <- f()
	}()
	return <-errc
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
