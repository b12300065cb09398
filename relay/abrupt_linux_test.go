package relay

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A stream that is cut short does not look complete, whatever the cause: each
// side is reset, unless the stream towards it had ended before. Every cause is
// tried, also one that somebody adds.
func TestCutShortIsReset(t *testing.T) {
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	l := r.listen("tcp4", ListenConfig{}, s.addr)
	for c := CauseNone; c < causes; c++ {
		t.Run(c.String(), func(t *testing.T) {
			for _, ended := range []string{"none", "client", "upstream"} {
				a, b := dial(t, l), (net.Conn)(nil)
				b = s.accept(t)
				say(t, a, b, "a question")
				say(t, b, a, "the first part of an answer")
				from, to := a, b
				switch ended {
				case "upstream":
					from, to = b, a
					fallthrough
				case "client":
					closeWrite(t, from)
					wantEnd(t, to)
				}
				killOne(t, r, c)
				r.expect(c.or(CauseKilled))
				wantReset(t, from)
				if ended == "none" {
					wantReset(t, to)
				}
			}
		})
	}
}

func killOne(t *testing.T, r *rig, c Cause) {
	t.Helper()
	n := 0
	r.e.Flows(func(fs []FlowInfo) bool {
		for _, f := range fs {
			n++
			if !r.e.Kill(f.ID, c) {
				t.Errorf("flow %x is gone", f.ID)
			}
		}
		return true
	})
	if n != 1 {
		t.Errorf("%d flows", n)
	}
}

// What ended well is delivered to its last byte, though the other direction is
// cut short: a reset would destroy what the side's socket still has to send.
func TestCutShortSparesWhatHasEnded(t *testing.T) {
	const n = 512 << 10
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	l := r.listen("tcp4", ListenConfig{}, s.addr)
	a := dialSmall(t, l)
	b := s.accept(t)
	go func() {
		b.Write(testnet.NewPattern(1).At(0, n))
		closeWrite(t, b)
	}()
	testwait.Until(t, "the answer and its end are in the client's socket", func() (ended bool) {
		r.e.onLoops(func(f *Flow) { ended = streamOf(f).over(down) })
		return ended
	})
	killOne(t, r, CauseRemoved)
	rec := r.expect(CauseRemoved)
	if rec.Down.Written != n {
		t.Fatalf("%+v", rec.Down)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(a, buf); err != nil {
		t.Fatal(err)
	}
	if err := testnet.NewPattern(1).Check(0, buf); err != nil {
		t.Error(err)
	}
	wantEnd(t, a)
	wantReset(t, b)
}

// What ended well arrives to its last byte, although the client has said more than
// was read from it: to close a socket with unread data is a reset, too.
func TestCutShortSparesWhatHasEndedBeforeUnread(t *testing.T) {
	const n = 512 << 10
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	l := r.listen("tcp4", ListenConfig{Dial: &DialConfig{Socket: SocketOptions{SendBuffer: 64 << 10}}}, s.addr)
	a := dialSmall(t, l)
	b := s.accept(t)
	b.(*net.TCPConn).SetReadBuffer(64 << 10)
	go func() {
		b.Write(testnet.NewPattern(1).At(0, n))
		closeWrite(t, b)
	}()
	chunk := make([]byte, 16<<10)
	for sent, stalled := int64(0), false; !stalled; {
		a.Write(chunk)
		sent += int64(len(chunk))
		testwait.Until(t, "the answer and the question are on their way", func() bool {
			f := list(r.e)[0]
			stalled = f.Up.Read > f.Up.Written
			return f.Down.Written == n && (stalled || f.Up.Read == sent)
		})
	}
	testwait.Until(t, "the answer's end is in the client's socket", func() (ended bool) {
		r.e.onLoops(func(f *Flow) { ended = streamOf(f).over(down) })
		return ended
	})
	a.Write(chunk)
	a.Write(chunk)
	killOne(t, r, CauseRemoved)
	r.expect(CauseRemoved)
	buf := make([]byte, n)
	if m, err := io.ReadFull(a, buf); err != nil {
		t.Fatalf("%d bytes, %v", m, err)
	}
	if err := testnet.NewPattern(1).Check(0, buf); err != nil {
		t.Error(err)
	}
	wantEnd(t, a)
}

// dialSmall dials l with a socket that takes little at once.
func dialSmall(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c := dial(t, l)
	if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	return c
}

// How the caller wanted its connection closed, when it still was its own, means
// nothing to a flow: what was delivered arrives, and no loop waits in close(2).
func TestAdoptForgetsLinger(t *testing.T) {
	const n = 512 << 10
	for _, linger := range []int{0, 3600} {
		t.Run(fmt.Sprintf("linger=%d", linger), func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			a, innerA := testnet.Pair(t, "tcp4")
			innerB, b := testnet.Pair(t, "tcp4")
			a.(*net.TCPConn).SetReadBuffer(64 << 10)
			innerA.(*net.TCPConn).SetLinger(linger)
			innerB.(*net.TCPConn).SetLinger(linger)
			if err := r.e.Relay(innerA, innerB, PairConfig{Done: r.done}); err != nil {
				t.Fatal(err)
			}
			closeWrite(t, a)
			wantEnd(t, b)
			go testnet.Play(b, testnet.Script{Send: n, SendSeed: 1})
			if rec := r.expect(CauseEnd); rec.Down.Written != n {
				t.Errorf("%+v", rec.Down)
			}
			buf := make([]byte, n)
			if m, err := io.ReadFull(a, buf); err != nil {
				t.Fatalf("%d bytes of %d, %v", m, n, err)
			}
			if err := testnet.NewPattern(1).Check(0, buf); err != nil {
				t.Error(err)
			}
			wantEnd(t, a)
		})
	}
}
