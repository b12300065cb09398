package dgram

import (
	"context"
	"fmt"
	"net"
	"syscall"
)

// ListenReusePort opens n UDP sockets on one address and port, so that each CPU can
// read from its own. The kernel chooses the socket of a datagram by a hash of the
// addresses, so all datagrams of a client reach the same socket as long as no socket of
// the port is opened or closed. If the port is 0, all sockets have the same free port,
// which no other socket uses. Another port may also be in use by other processes of this
// user that share it.
//
// The caller owns the sockets and must close each of them. If there is an error, none
// is left open. More than one socket needs SO_REUSEPORT (Linux 3.9); without it the
// error is [errors.ErrUnsupported].
func ListenReusePort(ctx context.Context, network, address string, n int) ([]*net.UDPConn, error) {
	if n < 1 {
		return nil, fmt.Errorf("listen on %d sockets: want at least 1", n)
	}
	// A free port is bound first and shared afterwards: with SO_REUSEPORT set, the
	// kernel may choose a port that another process of this user shares.
	var lc net.ListenConfig
	shared := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return share(raw) }}
	if n > 1 && !anyPort(network, address) {
		lc = shared
	}
	var all []*net.UDPConn
	for range n {
		pc, err := lc.ListenPacket(ctx, network, address)
		if err != nil {
			for _, c := range all {
				c.Close()
			}
			return nil, err
		}
		c, ok := pc.(*net.UDPConn)
		if !ok {
			pc.Close()
			return nil, net.UnknownNetworkError(network)
		}
		all = append(all, c)
		if len(all) == 1 && n > 1 && lc.Control == nil {
			if err := shareBound(c); err != nil {
				c.Close()
				return nil, err
			}
			lc = shared
		}
		address = c.LocalAddr().String()
	}
	return all, nil
}

// anyPort reports whether the kernel chooses the port of an address.
func anyPort(network, address string) bool {
	_, service, err := net.SplitHostPort(address)
	if err != nil {
		return address == ""
	}
	port, err := net.LookupPort(network, service)
	return err == nil && port == 0
}

func shareBound(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return share(raw)
}

// share sets SO_REUSEPORT.
func share(raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = setReusePort(fd) }); cerr != nil {
		return cerr
	}
	return err
}
