package dgram

import (
	"context"
	"fmt"
	"net"
	"syscall"
)

// ListenReusePort opens n UDP sockets on one address and port, so that each CPU
// can read its own: the kernel spreads what arrives by a hash of the addresses,
// and one client's datagrams always reach the same socket as long as none is
// opened or closed. Port 0 picks one for all that nobody else has. A port
// that is named may be shared with others of this user who share it, too.
//
// The sockets are the caller's, who must close each of them; on an error there
// are none. More than one needs SO_REUSEPORT (Linux 3.9); elsewhere the error is
// [errors.ErrUnsupported].
func ListenReusePort(ctx context.Context, network, address string, n int) ([]*net.UDPConn, error) {
	if n < 1 {
		return nil, fmt.Errorf("listen on %d sockets: want at least 1", n)
	}
	// A free port is bound alone and shared afterwards: with SO_REUSEPORT set,
	// the kernel takes for free what others of this user share.
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

// anyPort reports whether an address leaves the port to the kernel.
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
