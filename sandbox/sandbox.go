// Package sandbox takes away from the running process what it does not need, so that whoever takes control of it
// gains little. Its API may change after version 1.0 of the module; CHANGELOG.md then says how to follow.
//
// A program reads its configuration, opens what needs privileges, and calls [Enter] once, before it reads anything
// from strangers. From then on every thread of the process, those that exist and those to come, has only what the
// [Policy] names. There is no way back. What the process needs later and may not do itself, another one does for it:
// package keeper has a way to ask.
//
// The layers are independent of each other, and each holds as far as the kernel can ([Report]). Enter never fails
// because the kernel is old, or because the process was started without privileges: the report says which layer is
// not held, and why.
//
//   - [NoNewPrivs]: no program that is executed has more privileges than this one. prctl(2), PR_SET_NO_NEW_PRIVS.
//   - [Credentials]: another user and other groups, if the policy names them and the process may change them.
//   - [Capabilities]: none but those of the policy, in any set, including the bounding set. capabilities(7).
//   - [Files], [Network], [Scope]: Landlock restricts which files are opened, which TCP ports are connected to and
//     bound, and that no signal and no connection to an abstract Unix socket leaves the process. landlock(7).
//   - [Calls]: a seccomp filter refuses each system call that is not on a list. The list is made from what the Go runtime,
//     the standard library and this library call: no program is started, no process is made, nothing is traced or mounted,
//     no memory becomes executable. seccomp(2).
//
// What the layers do not restrict: UDP ports; a port that the kernel chooses, by listening without binding; which Unix sockets of the file
// system are connected to, if there may be any; and what can be learned of files without opening them, such as that
// they exist.
//
// # Programs with cgo
//
// The attributes of Linux belong to threads. Without cgo the Go runtime changes them in all threads at once. A program that is
// linked with cgo may have threads that the runtime does not know. There, NoNewPrivs, Credentials and Calls hold as ever, because
// the kernel or the C library synchronises them. Capabilities hold if the user changes from root to another one and
// the policy keeps none, but for the bounding set; Landlock needs Linux 7.0. Build with CGO_ENABLED=0 to have all.
//
// The package needs Linux. On other systems Enter returns [errors.ErrUnsupported].
package sandbox

import (
	"errors"
	"strconv"
)

// Policy says what a process needs. The zero value is the strictest one: no file, no TCP port and no capability, but the user
// that it has.
type Policy struct {
	// Mode says whether what is not in the policy is refused.
	Mode Mode

	// Read are files, and folders with everything beneath them, that may be opened for reading, and folders that may be listed.
	// Write are files that may also be written, and folders in which files, folders, Unix sockets and FIFOs may be
	// made, renamed and removed. What is open already stays open. A path is resolved when the process enters; one that does not
	// exist then is left out, and listed in [Report.Absent]. What is made there later is not covered: name the folder. That is so of
	// /proc/self, too, which the kernel may forget and make again at any time: name /proc. What it tells of other processes
	// is still refused if it takes the right to trace them.
	Read, Write []string
	// AnyFile leaves files as they are.
	AnyFile bool
	// Modes allows chmod(2), which Landlock does not restrict: a process that runs as root may change each of root's
	// files with it, wherever it is. fchmod(2), on an open file, is always allowed.
	Modes bool

	// Connect and Bind are the TCP ports that sockets may be connected to, and bound to. AnyConnect and AnyBind allow all. Sockets of
	// other protocols are not restricted; but see Multipath.
	Connect, Bind       []uint16
	AnyConnect, AnyBind bool
	// Multipath allows sockets of multipath TCP. Landlock does not restrict their ports.
	Multipath bool

	// Unix allows new Unix sockets. Landlock does not restrict to which of those in the file system they are connected, and a
	// process that runs as root reaches every service's, such as that of a container engine. Pairs of connected sockets are always
	// allowed, and sockets that are open stay so.
	Unix bool

	// User is the user and group that the process becomes. Nil: it stays what it is.
	User *User
	// Keep are the capabilities that it keeps, of those that it has.
	Keep []Capability

	// Outside allows connections to abstract Unix sockets of other processes.
	Outside bool

	// Without are layers that are not wanted.
	Without []Layer
}

// Mode says what happens to a system call that the policy does not have.
type Mode uint8

const (
	// Enforce refuses it.
	Enforce Mode = iota
	// Log lets everything pass. System calls that Enforce would refuse are written to the kernel's log (audit, or dmesg), with their
	// number. The other layers cannot log, and are not held.
	Log
)

// User is a user with its groups.
type User struct {
	UID, GID int
	// Groups are the supplementary groups. Nil: none.
	Groups []int
}

// Capability is the number of a capability, as in capabilities(7).
type Capability uint8

// Capabilities that a relay may need.
const (
	NetBindService Capability = 10 // ports below 1024
	NetAdmin       Capability = 12 // marks, transparent sockets
	NetRaw         Capability = 13 // transparent sockets, and binding to a device
)

// Layer is one of the parts of a sandbox, which hold independently of each other.
type Layer uint8

const (
	NoNewPrivs Layer = iota
	Credentials
	Capabilities
	Files
	Network
	Scope
	Calls
)

var layers = [...]string{NoNewPrivs: "no-new-privs", Credentials: "user", Capabilities: "capabilities", Files: "landlock-files",
	Network: "landlock-network", Scope: "landlock-scope", Calls: "seccomp"}

// String returns "no-new-privs", "user", "capabilities", "landlock-files", "landlock-network", "landlock-scope" or
// "seccomp".
func (l Layer) String() string {
	if int(l) < len(layers) {
		return layers[l]
	}
	return strconv.Itoa(int(l))
}

// Status says whether a layer holds.
type Status struct {
	Layer Layer
	// Held reports that the layer restricts every thread of the process as the policy says.
	Held bool
	// Wanted reports that the policy asks for it: not if it is in [Policy.Without], if the policy allows everything there, or
	// in the mode Log.
	Wanted bool
	// Why says why a layer is not held; and of a layer that is held, what is missing, or nothing.
	Why string
}

// Report says what holds.
type Report struct {
	// Layers has every layer once, in the order of their numbers.
	Layers []Status
	// Absent are the paths of the policy that do not exist, or could not be opened.
	Absent []string
}

// Held reports whether a layer holds.
func (r Report) Held(l Layer) bool { return int(l) < len(r.Layers) && r.Layers[l].Held }

var (
	// ErrPolicy is returned when a policy is invalid: it has more than 4,096 paths or ports, an empty path or a path
	// with a zero byte, or a negative user or group.
	ErrPolicy = errors.New("sandbox: invalid policy")
	// ErrEntered is returned when this process has entered a sandbox already.
	ErrEntered = errors.New("sandbox: entered already")
)

// maxEntries bounds the lists of a policy.
const maxEntries = 4096
