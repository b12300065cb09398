package dgram

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// maxKept is the maximum number of errors that drainErrors keeps for ReadErrors.
const maxKept = 64

// icmpErrors reads a socket's error queue.
type icmpErrors struct {
	mu    sync.Mutex
	queue sys.ErrQueue
	kept  []ICMPError
	zones zones
}

// ReadErrors returns ICMP errors about datagrams that were sent earlier, oldest first. It
// stores them in es and returns how many; if there are none, it returns 0 and a nil
// error. It does not block. It needs [Config.Errors]; without it the error is
// [errors.ErrUnsupported].
//
// The kernel's queue is limited by the size of the receive buffer, and further errors
// are dropped. Call ReadErrors when a read or write returns one of them, or at intervals.
func (c *Conn) ReadErrors(es []ICMPError) (n int, err error) {
	if !c.mode.Errors {
		return 0, c.fail("read errors", errors.ErrUnsupported)
	}
	q := &c.icmp
	q.mu.Lock()
	defer q.mu.Unlock()
	n = copy(es, q.kept)
	q.kept = append(q.kept[:0], q.kept[n:]...)
	if n == len(es) {
		return n, nil
	}
	err = c.control(func(fd uintptr) {
		for n < len(es) {
			e, ok := q.next(fd)
			if !ok {
				return
			}
			es[n] = e
			n++
		}
	})
	if err != nil && n == 0 {
		return 0, c.failWait("read errors", err)
	}
	return n, nil
}

// drainErrors empties the kernel's queue and keeps the latest for ReadErrors.
func (c *Conn) drainErrors() {
	q := &c.icmp
	q.mu.Lock()
	defer q.mu.Unlock()
	_ = c.control(func(fd uintptr) { // closed: the next read says so
		for {
			e, ok := q.next(fd)
			if !ok {
				return
			}
			if len(q.kept) == maxKept {
				q.kept = append(q.kept[:0], q.kept[1:]...)
				c.errorsLost.Add(1)
			}
			q.kept = append(q.kept, e)
		}
	})
}

// control runs f with the socket's descriptor.
func (c *Conn) control(f func(fd uintptr)) error {
	if c.sock == nil {
		return errZeroConn
	}
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}

// next takes one error from the kernel's queue; ok is false if there is none.
func (q *icmpErrors) next(fd uintptr) (e ICMPError, ok bool) {
	for {
		se, errno := q.queue.Next(fd)
		if errno == sys.EINTR {
			continue
		}
		if errno != 0 {
			return e, false
		}
		switch se.Origin {
		case sys.EeOriginLocal, sys.EeOriginICMP, sys.EeOriginICMP6:
		default:
			continue // a timestamp or the end of a zero-copy send: not an error
		}
		e = ICMPError{Err: se.Errno, Addr: se.To, From: se.From, Type: se.Type, Code: se.Code}
		if se.ToScope != 0 {
			e.Addr = netip.AddrPortFrom(q.zone(se.To.Addr(), se.ToScope), se.To.Port())
		}
		if se.FromScope != 0 {
			e.From = q.zone(se.From, se.FromScope)
		}
		if e.Err == syscall.EMSGSIZE {
			e.MTU = int(se.Info)
		}
		return e, true
	}
}

func (q *icmpErrors) zone(a netip.Addr, scope uint32) netip.Addr {
	q.zones.refresh()
	return q.zones.attach(a, scope)
}
