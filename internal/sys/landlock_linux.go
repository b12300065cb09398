package sys

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Versions of Landlock's ABI, and what came with them. landlock(7), landlock_create_ruleset(2).
const (
	landlockFiles    = 1 // Linux 5.13
	landlockRefer    = 2 // 5.19: moving files between folders can be allowed
	landlockTruncate = 3 // 6.2
	landlockNetwork  = 4 // 6.7: TCP ports
	landlockIoctl    = 5 // 6.10: ioctl on devices
	landlockScope    = 6 // 6.12: signals, abstract Unix sockets
	landlockThreads  = 8 // 7.0: all threads of the process at once
)

// Rights to files. There is none to execute one, and none to make a device.
const (
	readFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readPath  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeFile = readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	writePath = readPath | writeFile | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REFER
)

// LandlockABI returns the version of Landlock that the kernel has, or why it has none.
func LandlockABI() (int, error) {
	n, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, os.NewSyscallError("landlock_create_ruleset", e)
	}
	return int(n), nil
}

// landlockErrata returns which errors of its version the kernel has mended, bit n-1 for erratum n.
func landlockErrata() uintptr {
	n, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if e != 0 {
		return 0
	}
	return n
}

// LandlockHasThreads reports whether a version restricts all threads of a process, with cgo too.
func LandlockHasThreads(abi int) bool { return abi >= landlockThreads }

// Landlock is a set of rules that is being made.
type Landlock struct {
	fd     int
	abi    int
	handle unix.LandlockRulesetAttr
}

// LandlockWanted says what a set of rules restricts.
type LandlockWanted struct {
	Files, Bind, Connect, Signals, Abstract bool
}

// NewLandlock begins a set of rules that restricts what is wanted and the kernel can. got says what that is. Signals are left out if the kernel
// would take a thread of this process for another process: erratum 2. With nothing to restrict, it returns nil.
func NewLandlock(abi int, want LandlockWanted) (l *Landlock, got LandlockWanted, err error) {
	l = &Landlock{abi: abi}
	a := &l.handle
	if got.Files = want.Files && abi >= landlockFiles; got.Files {
		a.Handled_access_fs = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
			unix.LANDLOCK_ACCESS_FS_MAKE_SYM | writePath&^(unix.LANDLOCK_ACCESS_FS_REFER|unix.LANDLOCK_ACCESS_FS_TRUNCATE)
		if abi >= landlockRefer {
			a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
		}
		if abi >= landlockTruncate {
			a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		}
		if abi >= landlockIoctl {
			a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
		}
	}
	if got.Bind = want.Bind && abi >= landlockNetwork; got.Bind {
		a.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	if got.Connect = want.Connect && abi >= landlockNetwork; got.Connect {
		a.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	const sameProcess = 1 << 1
	if got.Signals = want.Signals && abi >= landlockScope && (abi >= landlockThreads || landlockErrata()&sameProcess != 0); got.Signals {
		a.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
	}
	if got.Abstract = want.Abstract && abi >= landlockScope; got.Abstract {
		a.Scoped |= unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	if *a == (unix.LandlockRulesetAttr{}) {
		return nil, got, nil
	}
	// An older kernel takes a structure of a later version if what it does not know is zero.
	fd, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a), 0)
	if e != 0 {
		return nil, LandlockWanted{}, os.NewSyscallError("landlock_create_ruleset", e)
	}
	l.fd = int(fd)
	return l, got, nil
}

// AllowPath allows reading a file, or everything beneath a folder, and writing. The error is that of opening it.
func (l *Landlock) AllowPath(path string, write bool) error {
	if l.handle.Handled_access_fs == 0 {
		return nil
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	rule := unix.LandlockPathBeneathAttr{Parent_fd: int32(fd)}
	switch {
	case folder && write:
		rule.Allowed_access = writePath
	case folder:
		rule.Allowed_access = readPath
	case write:
		rule.Allowed_access = writeFile
	default:
		rule.Allowed_access = readFile
	}
	rule.Allowed_access &= l.handle.Handled_access_fs
	return l.add(unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&rule))
}

// netPort is struct landlock_net_port_attr.
type netPort struct{ access, port uint64 }

// landlockNetPort is LANDLOCK_RULE_NET_PORT.
const landlockNetPort = 2

// AllowPort allows TCP sockets to bind or connect to a port.
func (l *Landlock) AllowPort(port uint16, bind, connect bool) error {
	rule := netPort{port: uint64(port)}
	if bind {
		rule.access |= unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	if connect {
		rule.access |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if rule.access &= l.handle.Handled_access_net; rule.access == 0 {
		return nil
	}
	return l.add(landlockNetPort, unsafe.Pointer(&rule))
}

func (l *Landlock) add(kind uintptr, rule unsafe.Pointer) error {
	_, _, e := syscall.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(l.fd), kind, uintptr(rule), 0, 0, 0)
	if e != 0 {
		return os.NewSyscallError("landlock_add_rule", e)
	}
	return nil
}

// Restrict applies the rules to all threads. no_new_privs must be set. The error is [ErrCgo] if that is not possible.
func (l *Landlock) Restrict() error {
	if l.abi >= landlockThreads {
		_, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(l.fd), unix.LANDLOCK_RESTRICT_SELF_TSYNC, 0)
		if e != 0 {
			return os.NewSyscallError("landlock_restrict_self", e)
		}
		return nil
	}
	return allThreads("landlock_restrict_self", unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(l.fd), 0, 0)
}

// Close closes the set of rules. What was restricted stays so.
func (l *Landlock) Close() {
	unix.Close(l.fd)
	runtime.KeepAlive(l)
}

// IsPathError reports whether an error of AllowPath is about the path, not about the rules.
func IsPathError(err error) bool {
	_, ok := err.(*os.PathError)
	return ok
}
