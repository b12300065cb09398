package sys

import (
	"encoding/binary"
	"iter"
	"syscall"

	"golang.org/x/sys/unix"
)

// On a Unix socket, the room for control messages decides what a peer can do to this process: if
// there is room for a passed descriptor, the kernel installs it, and an untrusted peer could fill
// the table with one-byte datagrams (unix(7), SCM_RIGHTS). Without room, the kernel drops the
// descriptors and sets MSG_CTRUNC. So a receive from a Unix socket has no room for control
// messages, or room for exactly the time of arrival, which the kernel writes first
// (unix_dgram_recvmsg, Linux 6.18). All receives into a Vector pass the socket's family, and go
// through offer and received.

// timeRoom is the size of the time of arrival, a struct timespec.
const timeRoom = hdrLen + 2*alignTo

// OfferTime makes room for the time of arrival if the vector receives from Unix sockets. Other
// families always have it.
func (v *Vector) OfferTime() { v.timed = true }

// offer sets the room in the headers that a socket of this family may fill.
func (v *Vector) offer(family Family) {
	room := ControlSize
	if family == Unix {
		room = 0
		if v.timed {
			room = timeRoom
		}
	}
	if room == v.room {
		return
	}
	v.room = room
	for i := range v.hdrs {
		v.hdrs[i].hdr.SetControllen(room)
	}
}

// dropPassed closes the descriptors in the control messages of message i, and makes the message
// look as if there had been no room for them. There can only be descriptors if the time of arrival,
// for which the room was meant, is missing.
func (v *Vector) dropPassed(i int) {
	_, _, _, control := v.Received(i)
	if closePassed(control) {
		h := &v.hdrs[i].hdr
		h.SetControllen(0)
		h.Flags |= MsgCtrunc
	}
}

// closePassed closes the descriptors in control messages, and reports whether
// there were any.
func closePassed(control []byte) (found bool) {
	for data := range passed(control) {
		found = true
		for ; len(data) >= 4; data = data[4:] {
			syscall.RawSyscall(unix.SYS_CLOSE, uintptr(binary.NativeEndian.Uint32(data)), 0, 0)
		}
	}
	return found
}

// passed yields the control messages that contain descriptors: SCM_RIGHTS, and SCM_PIDFD (Linux
// 6.5).
func passed(control []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			level, typ, data, rest, ok := cutControl(control)
			if !ok || level == unix.SOL_SOCKET && (typ == unix.SCM_RIGHTS || typ == unix.SCM_PIDFD) && !yield(data) {
				return
			}
			control = rest
		}
	}
}

// HasRights reports whether control messages contain descriptors.
func HasRights(control []byte) bool {
	for range passed(control) {
		return true
	}
	return false
}

// AppendRights passes descriptors with one message on a Unix socket. unix(7), SCM_RIGHTS.
func AppendRights(b []byte, fds ...int) []byte {
	b, data := appendControl(b, unix.SOL_SOCKET, unix.SCM_RIGHTS, 4*len(fds))
	for i, fd := range fds {
		binary.NativeEndian.PutUint32(data[4*i:], uint32(fd))
	}
	return b
}
