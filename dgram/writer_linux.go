package dgram

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// writer sends batches. Like reader, it keeps what a call needs from one call to the next.
//
// There are two positions in a batch: at is where planning continues, and done is how far
// the batch has been sent. The entries between them are packed into vec, and the first sent
// of them have been sent.
//
//	messages  0 ........ done ........ at ........ len(ms)
//	          sent       packed        to plan
type writer struct {
	k    *kernel
	mu   sync.Mutex
	vec  *sys.Vector
	step func(fd uintptr) bool
	send func(v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) // replaced by tests, which refuse runs

	ms       []Message
	at, done position
	entries  []entry
	sent     int
	err      error     // why at could not be packed
	errno    sys.Errno // why done could not be sent

	// After a run was refused, the datagrams up to singly are sent one by one.
	singly  position
	refused refused
	again   bool // the run at done has failed once

	zones zones
	clock clock
}

// refused is a run that the kernel has refused. It is kept until one of its datagrams has
// been sent alone, which proves that the kernel refused the run and not the datagrams.
type refused struct {
	errno sys.Errno
	size  int
	to    netip.Addr
}

func (w *writer) init(k *kernel) {
	w.k = k
	w.step = w.flush
	w.send = send
}

// send uses a raw system call for one header, which is short and does not involve the
// scheduler.
func send(v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) {
	if to-from == 1 {
		return v.SendRaw(fd, from, to)
	}
	return v.Send(fd, from, to)
}

func (w *writer) write(ms []Message) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.vec == nil || w.vec.Len() < min(len(ms), sys.MaxVector) {
		n := min(grown(len(ms)), sys.MaxVector)
		w.vec = sys.NewVector(n, max(n, segment.MaxCount), w.k.family)
		w.entries = make([]entry, n)
	}
	w.ms = ms
	w.at, w.done, w.singly, w.sent = position{}, position{}, position{}, 0
	w.err, w.errno, w.refused, w.clock = nil, 0, refused{}, clock{}
	w.again = false

	err := w.k.raw.Write(w.step)
	switch {
	case err != nil:
		err = w.k.c.failWait("write", err)
	case w.errno != 0:
		err = w.k.c.failCall("write", "sendmmsg", w.errno)
	case w.err != nil:
		err = w.k.c.fail("write", w.err)
	}
	if err != nil {
		ms[w.done.msg].N = w.done.off
	}
	w.vec.Release()
	w.ms, w.err = nil, nil
	return w.done.msg, err
}

// flush sends until everything has been sent, there is an error, or the socket's buffer is
// full. In the last case it returns false, and is called again when there is room. It is
// called with the socket's write lock held.
func (w *writer) flush(fd uintptr) bool {
	for {
		if w.sent == w.vec.Opened() {
			w.pack()
			if w.vec.Opened() == 0 {
				return true
			}
		}
		n, errno := w.send(w.vec, fd, w.sent, w.vec.Opened())
		w.k.c.writeCalls.Add(1)
		w.left(n)
		switch {
		case errno == 0, errno == sys.EINTR:
		case errno == sys.EAGAIN:
			return false
		case refusesRuns(errno) && w.entries[w.sent].run.Segmented():
			if errno == sys.EMSGSIZE && !w.again {
				w.again = true // it may be the error of an earlier datagram
				continue
			}
			w.again = false
			w.fallBack(errno)
		default:
			w.errno = errno
			return true
		}
	}
}

// left records that n more entries have been sent.
func (w *writer) left(n int) {
	if n == 0 {
		return
	}
	w.again = false
	var datagrams, bytes, runs int64
	from := w.done.msg
	for i := range w.entries[w.sent : w.sent+n] {
		e := &w.entries[w.sent+i]
		datagrams += int64(e.run.Count)
		bytes += int64(e.run.Bytes)
		if e.run.Segmented() {
			runs++
		}
	}
	w.sent += n
	w.done = w.entries[w.sent-1].end
	for i := from; i < w.done.msg; i++ {
		w.ms[i].N = len(w.ms[i].Buf)
	}
	c := w.k.c
	c.writeMessages.Add(int64(w.done.msg - from))
	c.writeDatagrams.Add(datagrams)
	c.writeBytes.Add(bytes)
	if runs > 0 {
		c.runs.Add(runs)
	}
	if w.refused.errno != 0 {
		w.k.routes.refuse(w.refused.to, w.refused.size, w.refused.errno)
		w.refused = refused{}
	}
}

// fallBack sends the datagrams of a refused run one by one. When one of them has been
// sent, it is certain that the run was refused and not its datagrams.
func (w *writer) fallBack(errno sys.Errno) {
	e := &w.entries[w.sent]
	w.singly = e.end
	w.refused = refused{errno, e.run.Size, w.ms[e.begin.msg].Addr.Addr()}
	w.k.c.fallbacks.Add(1)
	w.at = w.done
	w.sent = 0
	w.vec.Release()
}

// pack plans entries from at on, as many as fit into the vector. While it is not certain
// that a run was refused for being a run, pack does not go beyond that run.
func (w *writer) pack() {
	w.vec.Release()
	w.sent = 0
	for w.at.msg < len(w.ms) && (w.refused.errno == 0 || w.at.before(w.singly)) {
		if !w.vec.Room(1) {
			return
		}
		m := &w.ms[w.at.msg]
		e := &w.entries[w.vec.Opened()]
		r := w.rules(m)
		r.plan(e, w.ms, w.at)
		if !w.vec.Room(max(1, e.end.msg-e.begin.msg)) {
			return
		}
		if m.Segment < 0 {
			w.err = w.k.c.badSegment(m)
			return
		}
		i := w.vec.Open()
		if !w.address(i, m) || !w.control(i, m, &e.run) {
			w.vec.Close()
			return
		}
		w.buffers(e)
		w.at = e.end
	}
}

// rules returns the rules for the run that begins with m.
func (w *writer) rules(m *Message) rules {
	if w.k.count == 1 || w.at.before(w.singly) {
		return noRuns
	}
	a := m.Addr.Addr()
	size := len(m.Buf)
	if 0 < m.Segment && m.Segment < size {
		size = m.Segment
	}
	if size > w.k.routes.largest(a) {
		return noRuns
	}
	limit := segment.Limit{Count: w.k.count, Bytes: segment.MaxBytes4}
	if w.k.v6(a) {
		limit.Bytes = segment.MaxBytes6
	}
	return rules{limit: limit, pace: w.k.c.mode.Pace}
}

// buffers adds the payload of e to the message that was opened last.
func (w *writer) buffers(e *entry) {
	if e.end.off > 0 {
		w.vec.Add(w.ms[e.begin.msg].Buf[e.begin.off:e.end.off])
		return
	}
	w.vec.Add(w.ms[e.begin.msg].Buf[e.begin.off:])
	for i := e.begin.msg + 1; i < e.end.msg; i++ {
		w.vec.Add(w.ms[i].Buf)
	}
}

// address sets the destination of message i. It sets err and returns false if it cannot.
func (w *writer) address(i int, m *Message) bool {
	var n int
	switch {
	case w.k.family == sys.Unix:
		if w.k.c.toPath(m.Path) {
			return true
		}
		if w.k.c.path != nil {
			w.err = net.ErrWriteToConnected
			return false
		}
		if n = sys.PutPath(w.vec.Name(i), m.Path); n == 0 {
			w.err = syscall.ENAMETOOLONG
			return false
		}
	case !m.Addr.IsValid() || w.k.c.toPeer(m.Addr):
		return true
	case w.k.c.remote.IsValid():
		w.err = net.ErrWriteToConnected
		return false
	default:
		var scope uint32
		if zone := m.Addr.Addr().Zone(); zone != "" {
			w.zones.refresh()
			var ok bool
			if scope, ok = w.zones.scope(zone); !ok {
				w.err = syscall.ENODEV
				return false
			}
		}
		if n = sys.PutAddrPort(w.vec.Name(i), w.k.family, m.Addr, scope); n == 0 {
			w.err = syscall.EAFNOSUPPORT
			return false
		}
	}
	w.vec.SetNameLen(i, n)
	return true
}

// control sets the control messages of message i. It sets err and returns false if there
// are too many.
func (w *writer) control(i int, m *Message, run *segment.Run) bool {
	plain := m.ECN == NotECT && m.Interface == 0 && !m.Local.IsValid() && len(m.Control) == 0 && !w.k.c.mode.Pace
	if plain && !run.Segmented() {
		return true
	}
	b := w.vec.Control(i)
	if run.Segmented() {
		b = sys.AppendSegment(b, uint16(run.Size))
	}
	if !plain && w.k.family != sys.Unix {
		v6 := w.k.v6(m.Addr.Addr())
		if m.ECN != NotECT {
			tos := w.k.tos4
			if v6 {
				tos = w.k.tos6
			}
			b = sys.AppendTOS(b, v6, tos&^3|uint8(m.ECN&3))
		}
		if m.Local.IsValid() || m.Interface != 0 {
			b = sys.AppendLocal(b, v6, m.Local, m.Interface)
		}
		if w.k.c.mode.Pace && !m.Time.IsZero() {
			b = sys.AppendTxTime(b, w.clock.monotonic(m.Time))
		}
	}
	if len(m.Control) > cap(b)-len(b) {
		w.err = syscall.EMSGSIZE
		return false
	}
	b = append(b, m.Control...)
	w.vec.SetControlLen(i, len(b))
	return true
}

// clock turns Go's time into the kernel's monotonic one, reading Go's at most
// once a batch.
type clock struct{ now time.Time }

func (c *clock) monotonic(t time.Time) int64 {
	if c.now.IsZero() {
		c.now = time.Now()
	}
	return sys.MonotonicAt(c.now) + int64(t.Sub(c.now)) // t may have no monotonic reading
}
