package dgram

import (
	"net"
	"net/netip"
	"sync"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// portable is the driver for every system. It moves one datagram at a time with package
// net, and has addresses and lengths but no other metadata.
type portable struct {
	c    *Conn
	udp  *net.UDPConn // one of the two is nil
	unix *net.UnixConn
	rmu  sync.Mutex
	wmu  sync.Mutex
	v4   bool // the UDP socket's family is IPv4
}

func newPortable(c *Conn, _ Config) (driver, error) {
	p := &portable{c: c}
	switch s := c.sock.(type) {
	case *net.UDPConn:
		p.udp = s
		a, ok := s.LocalAddr().(*net.UDPAddr)
		p.v4 = ok && a.IP.To4() != nil
	case *net.UnixConn:
		p.unix = s
	}
	return p, nil
}

func (p *portable) read(ms []Message, _ bool) (int, error) {
	p.rmu.Lock()
	defer p.rmu.Unlock()
	old := &ms[0]
	m := Message{Buf: old.Buf, Control: old.Control[:0]}
	var flags int
	var err error
	if p.unix != nil {
		var a *net.UnixAddr
		if m.N, _, flags, a, err = p.unix.ReadMsgUnix(m.Buf, nil); a != nil {
			m.Path = a.Name
		}
	} else {
		m.N, _, flags, m.Addr, err = p.udp.ReadMsgUDPAddrPort(m.Buf, nil)
		m.Addr = plain(m.Addr)
	}
	p.c.readCalls.Add(1)
	if err != nil {
		return 0, p.c.failWait("read", err)
	}
	if flags&sys.MsgTrunc != 0 {
		m.Flags |= Truncated
		p.c.truncated.Add(1)
	}
	*old = m
	p.c.readMessages.Add(1)
	p.c.readDatagrams.Add(1)
	p.c.readBytes.Add(int64(m.N))
	return 1, nil
}

func (p *portable) write(ms []Message) (int, error) {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	for i := range ms {
		m := &ms[i]
		m.N = 0
		if m.Segment < 0 {
			return i, p.c.fail("write", p.c.badSegment(m))
		}
		for d := range segment.All(m.Buf, m.Segment) {
			if err := p.send(d, m); err != nil {
				return i, p.c.failWait("write", err)
			}
			m.N += len(d)
			p.c.writeDatagrams.Add(1)
		}
		p.c.writeMessages.Add(1)
		p.c.writeBytes.Add(int64(m.N))
	}
	return len(ms), nil
}

func (p *portable) send(d []byte, m *Message) error {
	p.c.writeCalls.Add(1)
	if p.unix != nil {
		if p.c.toPath(m.Path) {
			_, err := p.unix.Write(d)
			return err
		}
		_, _, err := p.unix.WriteMsgUnix(d, nil, &net.UnixAddr{Name: m.Path, Net: "unixgram"})
		return err
	}
	to := m.Addr
	if p.c.toPeer(to) {
		to = netip.AddrPort{}
	}
	if p.v4 {
		to = plain(to)
	}
	_, _, err := p.udp.WriteMsgUDPAddrPort(d, nil, to)
	return err
}
