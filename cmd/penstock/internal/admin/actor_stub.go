//go:build !linux

package admin

import "net"

// peerCredentials reports that the system does not tell.
func peerCredentials(*net.UnixConn) (uid, pid int, ok bool) { return 0, 0, false }
