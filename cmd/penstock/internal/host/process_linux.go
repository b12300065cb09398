package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// RaiseDescriptorLimit raises the limit on open descriptors as far as this process may, and returns it: to
// fs.nr_open with CAP_SYS_RESOURCE, to the hard limit without (getrlimit(2)).
func RaiseDescriptorLimit() (uint64, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	if text, err := os.ReadFile("/proc/sys/fs/nr_open"); err == nil {
		most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		all := syscall.Rlimit{Cur: most, Max: most}
		if err == nil && most > lim.Max && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &all) == nil {
			return most, nil
		}
	}
	if lim.Cur == lim.Max { // as the keeper has made it; a process in its sandbox may not even say so
		return uint64(lim.Cur), nil
	}
	lim.Cur = lim.Max
	return uint64(lim.Cur), os.NewSyscallError("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim))
}

// MaxDescriptors returns the limit on open descriptors; 0: unknown.
func MaxDescriptors() int64 {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil {
		return 0
	}
	return int64(lim.Cur)
}

// CPUTime returns the user and system time of the process.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// CheckSocketOptions tries the socket options of a group that need a capability. The error names
// the option.
func CheckSocketOptions(d *spec.Dial) error {
	if d.Mark == 0 && !d.Transparent {
		return nil
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	if d.Mark != 0 {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_MARK, int(d.Mark)); err != nil {
			return fmt.Errorf("mark: %w", os.NewSyscallError("setsockopt SO_MARK", err))
		}
	}
	if d.Transparent {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_IP, syscall.IP_TRANSPARENT, 1); err != nil {
			return fmt.Errorf("source client: %w", os.NewSyscallError("setsockopt IP_TRANSPARENT", err))
		}
	}
	return nil
}

// DialControl returns a function that sets the interface and mark of a group's sockets; nil:
// neither is configured.
func DialControl(d *spec.Dial) func(network, address string, c syscall.RawConn) error {
	if d.Interface == "" && d.Mark == 0 {
		return nil
	}
	return func(network, _ string, c syscall.RawConn) error {
		if network == "unix" || network == "unixgram" {
			return nil
		}
		var err error
		failed := c.Control(func(fd uintptr) {
			if d.Interface != "" {
				err = os.NewSyscallError("setsockopt SO_BINDTODEVICE", syscall.BindToDevice(int(fd), d.Interface))
			}
			if d.Mark != 0 && err == nil {
				err = os.NewSyscallError("setsockopt SO_MARK", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, int(d.Mark)))
			}
		})
		if failed != nil {
			return failed
		}
		return err
	}
}

// OwnBinary returns the path of this program, at which an upgrade will look for another version: the one
// that it was started by, because that may be a link that will lead elsewhere. exec is a path that
// executes this very file, even if it was replaced meanwhile.
func OwnBinary() (path, exec string, err error) {
	const self = "/proc/self/exe"
	running, err := os.Stat(self)
	if err != nil {
		return "", "", err
	}
	for _, find := range []func() (string, error){lookOwnName, os.Executable} {
		if path, err = find(); err != nil {
			continue
		}
		if at, err := os.Stat(path); err == nil && os.SameFile(at, running) {
			return path, path, nil
		}
	}
	return path, self, err
}

// lookOwnName returns the absolute path of the name that this program was started by.
func lookOwnName() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Exec replaces the program of this process.
func Exec(path string, args, env []string) error {
	return os.NewSyscallError("execve", syscall.Exec(path, args, env))
}

// UseAsStdin makes a file the standard input of the programs that this process executes.
func UseAsStdin(f *os.File) error {
	return os.NewSyscallError("dup3", syscall.Dup3(int(f.Fd()), 0, 0))
}

// MemoryFile returns an empty file in memory, which ends with its last descriptor.
func MemoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// FirstUnprivilegedPort returns the first port that can be bound without CAP_NET_BIND_SERVICE. ip(7).
func FirstUnprivilegedPort() uint16 {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16); err == nil {
			return uint16(n)
		}
	}
	return 1024
}

// EffectiveCapabilities returns the capabilities of this process, as bits. proc_pid_status(5).
func EffectiveCapabilities() uint64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, _ := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			return set
		}
	}
	return 0
}

// KernelOlderThan reports whether the kernel is older than a release.
func KernelOlderThan(major, minor int) bool {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	var a, b int
	if err != nil {
		return false
	}
	if n, _ := fmt.Sscanf(string(text), "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}
