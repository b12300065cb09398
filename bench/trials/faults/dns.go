//go:build linux

package main

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/penstock/penstock/bench/internal/echo"
)

// lie is how a name server fails.
type lie int32

const (
	truth    lie = iota
	silence      // it answers nothing
	failure      // SERVFAIL
	absent       // NXDOMAIN
	garbage      // random bytes, and answers with a wrong id, to another question, or cut short
	stranger     // NXDOMAIN with the right id, but from another port
	huge         // thousands of addresses, by TCP
	turns        // all members and one member in turn
)

// A nameServer answers each question for an A record with the addresses of the members.
type nameServer struct {
	lie   atomic.Int32
	asked atomic.Int64
	udp   *net.UDPConn
	other *net.UDPConn
}

func newNameServer(host string) (*nameServer, error) {
	d := &nameServer{}
	c, err := net.ListenPacket("udp", host+":53")
	if err != nil {
		return nil, err
	}
	d.udp = c.(*net.UDPConn)
	if c, err = net.ListenPacket("udp", host+":0"); err != nil {
		return nil, err
	}
	d.other = c.(*net.UDPConn)
	l, err := net.Listen("tcp", host+":53")
	if err != nil {
		return nil, err
	}
	go d.serve()
	go echo.Serve(l, d.serveTCP)
	return d, nil
}

func (d *nameServer) serve() {
	b := make([]byte, 4096)
	for {
		n, from, err := d.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		count := d.asked.Add(1)
		q := b[:n]
		if n < 17 {
			continue
		}
		switch lie(d.lie.Load()) {
		case silence:
		case garbage:
			d.garble(q, from)
		case stranger:
			d.other.WriteToUDPAddrPort(answer(q, 3, nil, false), from)
			d.udp.WriteToUDPAddrPort(answer(q, 0, d.addrs(members), false), from)
		case failure:
			d.udp.WriteToUDPAddrPort(answer(q, 2, nil, false), from)
		case absent:
			d.udp.WriteToUDPAddrPort(answer(q, 3, nil, false), from)
		case huge:
			d.udp.WriteToUDPAddrPort(answer(q, 0, nil, true), from)
		case turns:
			n := members
			if count%2 == 0 {
				n = 1
			}
			d.udp.WriteToUDPAddrPort(answer(q, 0, d.addrs(n), false), from)
		default:
			d.udp.WriteToUDPAddrPort(answer(q, 0, d.addrs(members), false), from)
		}
	}
}

// garble sends one of several kinds of nonsense.
func (d *nameServer) garble(q []byte, to netip.AddrPort) {
	a := answer(q, 0, d.addrs(members), false)
	switch rand.IntN(4) {
	case 0:
		for i := range a {
			a[i] = byte(rand.Uint32())
		}
	case 1:
		a[0] ^= 0xff
	case 2:
		a = a[:12+rand.IntN(len(a)-12)]
	case 3:
		a = answer(q, 0, []netip.Addr{netip.MustParseAddr("10.77.9.9")}, false)
		copy(a[13:], "xxxx") // another name, with an address that is no member's
	}
	d.udp.WriteToUDPAddrPort(a, to)
}

// serveTCP answers with as many addresses as fit, of which the members are the first.
func (d *nameServer) serveTCP(c net.Conn) {
	var size [2]byte
	for {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, q); err != nil || len(q) < 17 {
			return
		}
		addrs := d.addrs(members)
		if lie(d.lie.Load()) == huge {
			for i := range 1000 - len(addrs) {
				addrs = append(addrs, netip.AddrFrom4([4]byte{10, 78, byte(i >> 8), byte(i)}))
			}
		}
		a := answer(q, 0, addrs, false)
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
	}
}

func (d *nameServer) addrs(n int) (all []netip.Addr) {
	for i := range n {
		all = append(all, netip.MustParseAddr(memberIP(i)))
	}
	return all
}

// answer returns the answer to a question with a code (RFC 1035, 4.1). There is no address for questions
// of other types than A.
func answer(q []byte, code byte, addrs []netip.Addr, cut bool) []byte {
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end = min(end+5, len(q))
	if end >= 4 && binary.BigEndian.Uint16(q[end-4:]) != 1 {
		addrs = nil
	}
	a := append([]byte{q[0], q[1], 0x85, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if cut {
		a[2] |= 2
	}
	for _, addr := range addrs {
		a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4)
		a = append(a, addr.AsSlice()...)
	}
	binary.BigEndian.PutUint16(a[6:], uint16(len(addrs)))
	return a
}
