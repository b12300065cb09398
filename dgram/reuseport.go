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
// opened or closed. Port 0 picks a free one for all.
//
// The sockets are the caller's, who must close each of them; on an error there
// are none. More than one needs SO_REUSEPORT (Linux 3.9); elsewhere the error is
// [errors.ErrUnsupported].
func ListenReusePort(ctx context.Context, network, address string, n int) ([]*net.UDPConn, error) {
	if n < 1 {
		return nil, fmt.Errorf("listen on %d sockets: want at least 1", n)
	}
	lc := net.ListenConfig{}
	if n > 1 {
		lc.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if cerr := raw.Control(func(fd uintptr) { err = setReusePort(fd) }); cerr != nil {
				return cerr
			}
			return err
		}
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
		address = c.LocalAddr().String()
	}
	return all, nil
}
