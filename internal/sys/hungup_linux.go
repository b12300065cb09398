package sys

import "golang.org/x/sys/unix"

// HungUp reports whether the peer of a Unix stream socket has closed it and nothing is left to read. It is false
// if Poll fails. An error of the socket counts as that, and is taken. ppoll(2), POLLHUP.
func HungUp(k Sockets, fd int) bool {
	if k.Poll(fd, 0)&(unix.POLLHUP|unix.POLLNVAL) != unix.POLLHUP {
		return false
	}
	unread, _ := k.HasUnread(fd)
	return !unread
}

// HasError reports whether a socket has an error that nobody has been told yet. Unlike SockError it leaves
// the error there. It is true if Poll fails. ppoll(2), POLLERR.
func HasError(k Sockets, fd int) bool { return k.Poll(fd, 0)&(unix.POLLERR|unix.POLLNVAL) != 0 }
