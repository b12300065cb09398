package xnet

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// writer sends what x/net's messages say.
type writer struct {
	d   *dgram.Conn
	any netip.Addr // the unspecified address of the socket's family
	mu  sync.Mutex

	out     []dgram.Message
	scratch []byte // payload of messages with several buffers
}

func (w *writer) write(ms []ipv4.Message) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.out) < len(ms) {
		w.out = append(w.out, dgram.Message{})
	}
	out, err := w.translate(ms)
	n := 0
	if len(out) > 0 || err == nil {
		n, err = w.d.WriteBatch(out)
	}
	for i := range ms[:n] {
		ms[i].N, ms[i].NN = out[i].N, len(ms[i].OOB)
	}
	clear(out) // no caller's buffer stays referenced
	w.scratch = w.scratch[:0]
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// translate fills out with the messages up to the first that cannot be one.
func (w *writer) translate(ms []ipv4.Message) ([]dgram.Message, error) {
	w.reserve(ms)
	for i := range ms {
		m := &w.out[i]
		*m = dgram.Message{Control: ms[i].OOB}
		switch a := ms[i].Addr.(type) {
		case nil:
		case *net.UDPAddr:
			if a != nil {
				m.Addr = w.addrPort(a)
			}
		default:
			return w.out[:i], &net.OpError{Op: "write", Net: "udp", Addr: a, Err: fmt.Errorf("address of type %T: %w", a, net.InvalidAddrError("want a *net.UDPAddr"))}
		}
		if len(ms[i].Buffers) == 1 {
			m.Buf = ms[i].Buffers[0]
			continue
		}
		at := len(w.scratch)
		for _, b := range ms[i].Buffers {
			w.scratch = append(w.scratch, b...)
		}
		m.Buf = w.scratch[at:]
	}
	return w.out[:len(ms)], nil
}

// reserve makes room for all that has to be gathered, so that it does not move later.
func (w *writer) reserve(ms []ipv4.Message) {
	total := 0
	for i := range ms {
		if len(ms[i].Buffers) != 1 {
			for _, b := range ms[i].Buffers {
				total += len(b)
			}
		}
	}
	if total > cap(w.scratch) {
		w.scratch = make([]byte, 0, total)
	}
}

// addrPort is a.AddrPort, where an empty IP means this host, as net has it.
func (w *writer) addrPort(a *net.UDPAddr) netip.AddrPort {
	if len(a.IP) == 0 {
		return netip.AddrPortFrom(w.any, uint16(a.Port))
	}
	return a.AddrPort()
}
