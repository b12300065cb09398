package keeper

import (
	"fmt"
	"net"
	"os"
)

// Conn returns the connection that an item of one socket is, such as one that [Worker.HoldConn] was given. It is what
// [net.FileConn] returns: a *net.TCPConn, *net.UnixConn and so on. Deadlines are not kept, and neither is what a worker
// has read and not handled. The item's descriptor is used up, also if there is an error: its FDs then has -1, and further
// calls return [os.ErrClosed].
func (i Item) Conn() (net.Conn, error) {
	f, err := i.file()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// Listener is like [Item.Conn] for a listener, with the clients in its queue. Closing a listener on the path of a Unix
// socket does not remove the path.
func (i Item) Listener() (net.Listener, error) {
	f, err := i.file()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// PacketConn is like [Item.Conn] for a socket of datagrams.
func (i Item) PacketConn() (net.PacketConn, error) {
	f, err := i.file()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FilePacketConn(f)
}

// file takes the item's descriptor, for all copies of the item: its number may soon be another file's.
func (i Item) file() (*os.File, error) {
	if len(i.FDs) != 1 {
		return nil, fmt.Errorf("keeper: item %d:%d (%s) has %d descriptors, and not one", i.Key[0], i.Key[1], i.Label, len(i.FDs))
	}
	fd := i.FDs[0]
	if fd < 0 {
		return nil, fmt.Errorf("keeper: the descriptor of item %d:%d (%s) is used up: %w", i.Key[0], i.Key[1], i.Label, os.ErrClosed)
	}
	i.FDs[0] = -1
	return os.NewFile(uintptr(fd), i.Label), nil
}
