package admin

import (
	"context"
	"net"
	"net/http"
	"os/user"
	"strconv"
)

type actorKey struct{}

// Actor returns who asked for a change, for a context that a [Source] was given with
// the request: the user behind a Unix socket, or the address that showed the full
// token. It is empty for a context of no request.
func Actor(ctx context.Context) string {
	r, ok := ctx.Value(actorKey{}).(*http.Request)
	if !ok {
		return ""
	}
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		if uid, pid, ok := peerOf(c.Conn); ok {
			return userName(uid) + ", pid " + strconv.Itoa(pid)
		}
	}
	if local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return "the Unix socket"
	}
	return "full token, " + r.RemoteAddr
}

// withActor adds the request to its context, for Actor.
func withActor(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), actorKey{}, r))
}

// userName returns the name of a user, or the number where there is none.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// peerOf returns the user and the process at the other end of a Unix connection.
func peerOf(c net.Conn) (uid, pid int, ok bool) {
	if r, reserved := c.(*reservedConn); reserved {
		c = r.Conn
	}
	u, unix := c.(*net.UnixConn)
	if !unix {
		return 0, 0, false
	}
	return peerCredentials(u)
}
