//go:build linux

package main

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// impl is one implementation of sending n datagrams to oneself and receiving them.
type impl struct {
	name string
	open func(c *net.UDPConn, n, size int) (exchange, error)
}

// exchange is an implementation that is set up for one n and one size.
type exchange struct {
	once  func() error // writes n, reads n
	calls func() int64 // system calls so far that moved datagrams
	close func()       // nil if closing the socket is enough
}

func (x exchange) end() {
	if x.close != nil {
		x.close()
	}
}

// impls lists them in the order in which a round runs them.
var impls = []impl{
	{"net-iter", netIter},
	{"xnet-batch", xnetBatch},
	{"xnet-iter", xnetIter},
	{"dgram-batch", dgramBatch(dgram.Config{})},
	{"dgram-plain", dgramBatch(dgram.Config{NoGSO: true, NoGRO: true})},
	{"dgram-iter", dgramIter},
	{"floor", floor},
	{"floor-nopoll", floorNoPoll},
}

// socket opens a socket that talks to itself, as in x/net's benchmark, with room for the largest
// batch.
func socket() (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	if err := c.SetReadBuffer(4 << 20); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.SetWriteBuffer(4 << 20); err != nil {
		c.Close()
		return nil, err
	}
	// A lost datagram ends the run instead of hanging it.
	return c, c.SetDeadline(time.Now().Add(time.Minute))
}

func address(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

func netIter(c *net.UDPConn, n, size int) (exchange, error) {
	to, out, in := address(c), make([]byte, size), make([]byte, size)
	var calls int64
	return exchange{once: func() error {
		for range n {
			if _, err := c.WriteToUDPAddrPort(out, to); err != nil {
				return err
			}
			if _, _, err := c.ReadFromUDPAddrPort(in); err != nil {
				return err
			}
			calls += 2
		}
		return nil
	}, calls: func() int64 { return calls }}, nil
}

func xnetMessages(c *net.UDPConn, n, size int) (out, in []ipv4.Message) {
	out, in = make([]ipv4.Message, n), make([]ipv4.Message, n)
	data := make([]byte, size)
	for i := range out {
		out[i] = ipv4.Message{Buffers: [][]byte{data}, Addr: c.LocalAddr()}
		in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, size)}}
	}
	return out, in
}

func xnetBatch(c *net.UDPConn, n, size int) (exchange, error) {
	p := ipv4.NewPacketConn(c)
	out, in := xnetMessages(c, n, size)
	var calls int64
	return exchange{once: func() error {
		for done := 0; done < n; {
			k, err := p.WriteBatch(out[done:], 0)
			if err != nil {
				return err
			}
			done += k
			calls++
		}
		for got := 0; got < n; {
			k, err := p.ReadBatch(in[:n-got], 0)
			if err != nil {
				return err
			}
			got += k
			calls++
		}
		return nil
	}, calls: func() int64 { return calls }}, nil
}

func xnetIter(c *net.UDPConn, n, size int) (exchange, error) {
	p := ipv4.NewPacketConn(c)
	out, in := xnetMessages(c, 1, size)
	var calls int64
	return exchange{once: func() error {
		for range n {
			if _, err := p.WriteBatch(out, 0); err != nil {
				return err
			}
			if _, err := p.ReadBatch(in, 0); err != nil {
				return err
			}
			calls += 2
		}
		return nil
	}, calls: func() int64 { return calls }}, nil
}

// dgramMessages returns batches to write and to read. With GRO the datagrams come in super-packets,
// so fewer buffers suffice.
func dgramMessages(d *dgram.Conn, c *net.UDPConn, n, size int) (out, in []dgram.Message) {
	out = make([]dgram.Message, n)
	data := make([]byte, size)
	for i := range out {
		out[i] = dgram.Message{Buf: data, Addr: address(c)}
	}
	if d.Mode().GRO {
		return out, dgram.MakeMessages(min(n, 16))
	}
	in = make([]dgram.Message, n)
	for i := range in {
		in[i].Buf = make([]byte, size)
	}
	return out, in
}

func dgramBatch(cfg dgram.Config) func(*net.UDPConn, int, int) (exchange, error) {
	return func(c *net.UDPConn, n, size int) (exchange, error) {
		d, err := dgram.New(c, cfg)
		if err != nil {
			return exchange{}, err
		}
		out, in := dgramMessages(d, c, n, size)
		return exchange{once: func() error {
			if _, err := d.WriteBatch(out); err != nil {
				return err
			}
			return readAll(d, in, n, size)
		}, calls: callsOf(d)}, nil
	}
}

func dgramIter(c *net.UDPConn, n, size int) (exchange, error) {
	d, err := dgram.New(c, dgram.Config{})
	if err != nil {
		return exchange{}, err
	}
	out, in := dgramMessages(d, c, 1, size)
	return exchange{once: func() error {
		for range n {
			if _, err := d.WriteBatch(out); err != nil {
				return err
			}
			if err := readAll(d, in, 1, size); err != nil {
				return err
			}
		}
		return nil
	}, calls: callsOf(d)}, nil
}

// readAll reads n datagrams and looks at each, so that the time includes splitting.
func readAll(d *dgram.Conn, in []dgram.Message, n, size int) error {
	for got := 0; got < n; {
		k, err := d.ReadBatch(in[:min(len(in), n-got)])
		if err != nil {
			return err
		}
		for i := range in[:k] {
			for datagram := range in[i].Datagrams() {
				if got++; len(datagram) != size {
					return fmt.Errorf("datagram of %d bytes, want %d", len(datagram), size)
				}
			}
		}
	}
	return nil
}

func callsOf(d *dgram.Conn) func() int64 {
	return func() int64 {
		s := d.Stats()
		return s.ReadCalls + s.WriteCalls
	}
}
