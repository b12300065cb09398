package dgram

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestRunsRefused sends random batches while the kernel refuses runs, from the
// start or half way through, and expects that nothing is lost or sent twice.
func TestRunsRefused(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EINVAL, syscall.EMSGSIZE} {
		t.Run(errno.Error(), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			for range 20 {
				p := newPath(t, "v4")
				allowed := rnd.IntN(6) // runs that go through before the route turns
				var refused int64
				l := level{open: seam(func(w *writer, v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) {
					n := from
					for ; n < to; n++ {
						if w.entries[n].run.Segmented() {
							if allowed == 0 {
								break
							}
							allowed--
						}
					}
					if n == from {
						refused++
						return 0, errno
					}
					return v.Send(fd, from, n)
				})}
				send, recv := l.conn(t, p.send), bestLevel.conn(t, p.recv)
				for range 3 {
					ms := randomBatch(rnd, p)
					want := datagrams(ms)
					mustWrite(t, send, ms)
					if diff := sameDatagrams(collect(t, recv, len(want)), want); diff != "" {
						t.Fatal(diff)
					}
				}
				checkBalance(t, send, recv)
				if errno == syscall.EMSGSIZE {
					refused /= 2 // each run is tried again
				}
				if s := send.Stats(); s.Fallbacks != refused {
					t.Fatalf("%d fallbacks, %d refusals", s.Fallbacks, refused)
				}
				p.send.Close()
				p.recv.Close()
			}
		})
	}
}

// TestRefusalIsRemembered: one refusal a destination, and none for others.
func TestRefusalIsRemembered(t *testing.T) {
	p := newPath(t, "v4")
	good := listen(t, "udp4", "127.0.0.2:0")
	var refusals atomic.Int64
	l := level{open: seam(func(w *writer, v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) {
		e := w.entries[from]
		if e.run.Segmented() && w.ms[e.begin.msg].Addr == p.to {
			refusals.Add(1)
			return 0, syscall.EIO
		}
		return v.Send(fd, from, from+1)
	})}
	send, recv, goodRecv := l.conn(t, p.send), bestLevel.conn(t, p.recv), bestLevel.conn(t, good)
	for range 3 {
		var ms []Message
		for i := range 10 {
			ms = append(ms, Message{Buf: payload(i, 100), Addr: p.to})
		}
		for i := range 10 {
			ms = append(ms, Message{Buf: payload(i, 100), Addr: local(good)})
		}
		mustWrite(t, send, ms)
		collect(t, recv, 10)
		collect(t, goodRecv, 10)
	}
	if s := send.Stats(); refusals.Load() != 1 || s.Fallbacks != 1 || s.Runs != 3 {
		t.Errorf("%d refusals, %d fallbacks, %d runs; want 1, 1 and 3", refusals.Load(), s.Fallbacks, s.Runs)
	}
}

// TestRefusalNeedsProof: where single datagrams fail alike, it was not the run.
func TestRefusalNeedsProof(t *testing.T) {
	p := newPath(t, "v4")
	send := bestLevel.conn(t, p.send)
	ms := []Message{{Buf: []byte("ab"), Addr: p.to}, {Buf: []byte("cd"), Addr: p.to}}
	for i := range ms {
		ms[i].Local = netip.MustParseAddr("192.0.2.1") // not ours: EINVAL, whatever is sent
	}
	if n, err := send.WriteBatch(ms); n != 0 || err == nil {
		t.Fatalf("WriteBatch = %d, %v", n, err)
	}
	if r := &send.driver.(*kernel).routes; r.largest(p.to.Addr()) != math.MaxInt {
		t.Error("the destination is blamed for a bad source address")
	}
}

// An error of a run that an earlier datagram met, to another destination
// perhaps, keeps nobody's runs back: the second try tells.
func TestEarlierErrorBlamesNoRoute(t *testing.T) {
	p := newPath(t, "v4")
	fail := true
	l := level{open: seam(func(w *writer, v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) {
		if _, run := v.Segmented(from); run && fail {
			fail = false
			return 0, sys.EMSGSIZE
		}
		return v.Send(fd, from, to)
	})}
	send, recv := l.conn(t, p.send), bestLevel.conn(t, p.recv)
	var ms []Message
	for i := range 10 {
		ms = append(ms, Message{Buf: payload(i, 100), Addr: p.to})
	}
	mustWrite(t, send, ms)
	if diff := sameDatagrams(collect(t, recv, 10), datagrams(ms)); diff != "" {
		t.Error(diff)
	}
	if st := send.Stats(); fail || st.Fallbacks != 0 || st.Runs != 1 {
		t.Errorf("%+v", st)
	}
	if r := &send.driver.(*kernel).routes; r.largest(p.to.Addr()) != math.MaxInt {
		t.Error("the destination is blamed for an earlier error")
	}
}

// TestInterrupted makes a signal interrupt every third call, and one message leave with each.
func TestInterrupted(t *testing.T) {
	p := newPath(t, "v4")
	var tries int
	l := level{open: seam(func(w *writer, v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) {
		tries++
		if tries%3 == 1 {
			return 0, sys.EINTR
		}
		return v.Send(fd, from, from+1)
	})}
	send, recv := l.conn(t, p.send), bestLevel.conn(t, p.recv)
	var ms []Message
	for i := range 20 {
		ms = append(ms, Message{Buf: payload(i, 10+i), Addr: p.to})
	}
	mustWrite(t, send, ms)
	if diff := sameDatagrams(collect(t, recv, 20), datagrams(ms)); diff != "" {
		t.Error(diff)
	}
}
