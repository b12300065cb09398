package admin

import (
	"net"
	"syscall"
)

// peerCredentials asks the kernel who connected: SO_PEERCRED, unix(7).
func peerCredentials(c *net.UnixConn) (uid, pid int, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	var cred *syscall.Ucred
	if raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}) != nil || err != nil {
		return 0, 0, false
	}
	return int(cred.Uid), int(cred.Pid), true
}
