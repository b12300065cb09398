package testnet

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TOSConn is a UDP socket that chooses and sees the TOS byte or traffic class of each datagram.
type TOSConn struct {
	*net.UDPConn
	t      testing.TB
	family sys.Family
}

// NewTOSConn returns a TOSConn that uses c.
func NewTOSConn(t testing.TB, c *net.UDPConn) *TOSConn {
	t.Helper()
	p := &TOSConn{UDPConn: c, t: t}
	p.control(func(fd uintptr) (e sys.Errno) {
		if p.family, e = sys.FamilyOf(sys.Linux{}, int(fd)); e != 0 {
			return e
		}
		return sys.SetRecvTOS(sys.Linux{}, int(fd), p.family, true)
	})
	return p
}

func (p *TOSConn) control(do func(fd uintptr) sys.Errno) {
	p.t.Helper()
	var e sys.Errno
	raw, err := p.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { e = do(fd) })
	}
	if err == nil && e != 0 {
		err = e
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Tell sends datagrams of one size with a TOS byte, several of them as one run.
func (p *TOSConn) Tell(to netip.AddrPort, tos uint8, texts ...string) {
	p.t.Helper()
	v := sys.NewVector(1, 1, p.family)
	i := v.Open()
	v.Add([]byte(strings.Join(texts, "")))
	v.SetNameLen(i, sys.PutAddrPort(v.Name(i), p.family, to, 0))
	c := sys.AppendTOS(v.Control(i), !to.Addr().Unmap().Is4(), tos)
	if len(texts) > 1 {
		c = sys.AppendSegment(c, uint16(len(texts[0])))
	}
	v.SetControlLen(i, len(c))
	p.control(func(fd uintptr) sys.Errno {
		_, e := sys.Linux{}.SendBatch(int(fd), v, 0, 1)
		return e
	})
}

// Hear receives one datagram within the patience of the test, and checks its text and its TOS byte.
func (p *TOSConn) Hear(patience time.Duration, text string, tos uint8) (from netip.AddrPort) {
	p.t.Helper()
	b, oob := make([]byte, 1<<16), make([]byte, 256)
	p.SetReadDeadline(time.Now().Add(patience))
	n, m, _, from, err := p.ReadMsgUDPAddrPort(b, oob)
	if err != nil || string(b[:n]) != text {
		p.t.Fatalf("heard %q, %v; want %q", b[:min(n, 100)], err, text)
	}
	if got := sys.ParseControl(oob[:m]).TOS; got != tos {
		p.t.Errorf("%q has the TOS byte %#02x, want %#02x", text, got, tos)
	}
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}
