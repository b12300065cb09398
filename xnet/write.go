package xnet

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// writer sends messages of x/net with dgram.
type writer struct {
	d      *dgram.Conn
	theirs batches
	any    netip.Addr // the unspecified address of the socket's family
	mu     sync.Mutex

	out     []dgram.Message
	scratch []byte // payload of messages with several buffers
}

func (w *writer) write(ms []ipv4.Message) (sent int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.d == nil {
		return 0, unmade("write")
	}
	for len(w.out) < len(ms) {
		w.out = append(w.out, dgram.Message{})
	}
	for sent < len(ms) && err == nil {
		var n int
		n, err = w.writeSome(ms[sent:])
		if n == 0 {
			break
		}
		sent += n
	}
	if sent > 0 {
		return sent, nil
	}
	return 0, err
}

// writeSome sends the messages before the first that dgram cannot send, or, if that is the first
// of all, sends it with x/net. The error is that of message n.
func (w *writer) writeSome(ms []ipv4.Message) (n int, err error) {
	out := w.translate(ms)
	if len(out) > 0 {
		n, err = w.d.WriteBatch(out)
	}
	for i := range ms[:n] {
		ms[i].N, ms[i].NN, ms[i].Flags = out[i].N, len(ms[i].OOB), 0
	}
	clear(w.out[:len(ms)]) // do not keep the caller's buffers
	w.scratch = w.scratch[:0]
	switch {
	case n == 0 && (len(out) == 0 || errors.Is(err, net.ErrWriteToConnected)):
		n, err = w.theirs.WriteBatch(ms[:1], 0)
		n = max(n, 0)
	case errors.Is(err, net.ErrWriteToConnected):
		err = nil // it is returned by the next call
	}
	return n, err
}

// maxControl is the maximum length of OOB that dgram can send.
const maxControl = 384

// translate fills out with the messages before the first that dgram cannot send.
func (w *writer) translate(ms []ipv4.Message) []dgram.Message {
	w.reserve(ms)
	for i := range ms {
		m := &w.out[i]
		*m = dgram.Message{Control: ms[i].OOB}
		if len(m.Control) > maxControl {
			return w.out[:i]
		}
		switch a := ms[i].Addr.(type) {
		case nil:
		case *net.UDPAddr:
			if a != nil {
				m.Addr = w.addrPort(a)
			}
		default:
			return w.out[:i]
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
	return w.out[:len(ms)]
}

// reserve allocates scratch for all messages with several buffers, so that it does not move
// later.
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

// addrPort returns a.AddrPort, with this host for an empty IP, as in package net.
func (w *writer) addrPort(a *net.UDPAddr) netip.AddrPort {
	if len(a.IP) == 0 {
		return netip.AddrPortFrom(w.any, uint16(a.Port))
	}
	return a.AddrPort()
}
