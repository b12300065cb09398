package relay

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
)

// Browsers end their connections without close_notify. Where nothing is on its way, the upstream sees an end; where something is, or
// may be, a reset.

// A client that closes after an answer, and the upstream hears of it as of any end.
func TestTLSClientCloses(t *testing.T) {
	for _, upstream := range []string{"tcp4", "unix"} {
		for _, x := range []*encryption{{terminate: true}, {terminate: true, originate: true}} {
			for _, first := range []string{"client", "upstream"} {
				t.Run(upstream+"/"+first, func(t *testing.T) {
					r := newRig(t, Config{})
					a, b := x.ends(t, r, "tcp4", upstream)
					if first == "client" {
						say(t, a, b, "question")
					}
					say(t, b, a, "answer")
					rawOf(a).Close()
					wantEnd(t, b)
					b.Close()
					if rec := r.expect(CauseClientClosed); rec.Err == nil || !strings.Contains(rec.Err.Error(), "close_notify") {
						t.Errorf("%+v", rec)
					}
				})
			}
		}
	}
}

// Where the protocol says itself where messages end, the upstream need not have spoken last: of HTTP/2, browsers often
// send the last frame; and they make connections that they then do not need.
func TestTLSClientClosesBetweenMessages(t *testing.T) {
	for _, c := range []struct {
		protocol, says string
		want           Cause
	}{
		{"h2", "frame", CauseClientClosed},
		{"h2", "", CauseClientClosed},
		{"http/1.1", "", CauseClientClosed},
		{"http/1.1", "request", CauseClientTruncated},
		{"test", "", CauseClientTruncated},
	} {
		t.Run(c.protocol+"/"+c.says, func(t *testing.T) {
			r := newRig(t, Config{})
			a, b := (&encryption{terminate: true, protocol: c.protocol}).ends(t, r, "tcp4", "tcp4")
			if c.says != "" {
				say(t, a, b, c.says)
			}
			rawOf(a).CloseWrite() // tickets that were not read are a reset
			if c.want == CauseClientClosed {
				wantEnd(t, b)
				b.Close()
			} else {
				wantReset(t, b)
			}
			r.expect(c.want)
		})
	}
}

// What the upstream says to a client that has ended only one direction, as a FIN does, still arrives.
func TestTLSClientClosesOneDirection(t *testing.T) {
	r := newRig(t, Config{})
	a, b := (&encryption{terminate: true}).ends(t, r, "tcp4", "tcp4")
	say(t, a, b, "question")
	say(t, b, a, "answer")
	closeWrite(t, rawOf(a))
	wantEnd(t, b)
	say(t, b, a, "more")
	closeWrite(t, b)
	wantEnd(t, a)
	r.expect(CauseClientClosed)
}

// A side that was told that nothing more comes, and goes on, has to say itself when it ends: the relay would else tell the other
// side, with its own close_notify or FIN, that what was cut is complete.
func TestTLSCutAfterTheOtherEnd(t *testing.T) {
	for _, c := range []struct {
		protocol, says string
		cut            bool
	}{{"test", "", false}, {"test", "part of an answer", true}, {"http/1.1", "part of an answer", true}, {"h2", "frame", false}} {
		for side := range 2 {
			t.Run(fmt.Sprintf("%s/%s/side=%d", c.protocol, c.says, side), func(t *testing.T) {
				r := newRig(t, Config{})
				x := &encryption{terminate: true, originate: true, protocol: c.protocol}
				from, to := x.ends(t, r, "tcp4", "tcp4")
				say(t, from, to, "question")
				if side == sideUpstream {
					from, to = to, from
				}
				closeWrite(t, to)
				wantEnd(t, from)
				if c.says != "" {
					say(t, from, to, c.says)
				}
				closeWrite(t, rawOf(from))
				want := CauseEnd
				if c.cut {
					want = CauseClientTruncated + Cause(side)
				}
				if n, err := readToEnd(t, to); n != 0 || (err == nil) == c.cut {
					t.Errorf("%d bytes, and then %v", n, err)
				}
				r.expect(want)
			})
		}
	}
}

// Each of these is a sign that more was to come, or has not arrived.
func TestTLSClientIsCut(t *testing.T) {
	relayed := func(t *testing.T, r *rig, what string, is func(f *streamFlow) bool) {
		t.Helper()
		testwait.Until(t, what, func() (ok bool) {
			r.e.onLoops(func(f *Flow) { ok = is(streamOf(f)) })
			return ok
		})
	}
	arrived := func(t *testing.T, c net.Conn) {
		t.Helper()
		testwait.Until(t, "what was sent is at the relay", func() (all bool) {
			raw, _ := rawOf(c).SyscallConn()
			raw.Control(func(fd uintptr) { n, e := sys.Linux{}.WriteQueued(int(fd)); all = n == 0 && e == 0 })
			return all
		})
	}
	for name, c := range map[string]struct {
		client, upstream string // a Unix socket tells of bytes until they are read, TCP only until they are acknowledged
		protocol         string
		originate        bool
		bandwidth        int64
		last             func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) // before the client's FIN
		size             int                                                 // of what the upstream gets
	}{
		"the client has spoken last": {upstream: "unix", last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			say(t, a, b, "another question")
		}},
		"within a record": {protocol: "h2", last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			a.NetConn().Write([]byte{23, 3, 3})
		}},
		"it has not taken the answer": {protocol: "h2", last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			done := make(chan struct{})
			go func() { b.Write(make([]byte, 16<<20)); close(done) }()
			relayed(t, r, "the client takes no more", func(f *streamFlow) bool { return f.half[down].Held() > 0 })
			b.SetWriteDeadline(time.Now()) // a reset is told once, and not to this write
			<-done
		}},
		"it has not received the answer": {protocol: "h2", client: "unix", last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			b.Write(make([]byte, 1000))
			relayed(t, r, "the answer is in the socket", func(f *streamFlow) bool { return f.half[down].Out > 1000 })
		}},
		"the upstream has not taken all": {upstream: "unix", size: 1000, last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			a.Write(make([]byte, 1000))
			relayed(t, r, "all is in the socket", func(f *streamFlow) bool { return f.half[up].Out > 1000 })
			say(t, b, a, "go on")
		}},
		"a record of the upstream has begun": {originate: true, last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			b.(*tls.Conn).NetConn().Write([]byte{23, 3, 3})
			relayed(t, r, "it was read", func(f *streamFlow) bool { return f.tls.conn[sideUpstream].Within() })
		}},
		"the answer is throttled": {originate: true, bandwidth: 100, last: func(t *testing.T, r *rig, a *tls.Conn, b net.Conn) {
			for range 2 { // the second record is read as a whole, and delivered in part
				b.Write(make([]byte, 12000))
			}
			relayed(t, r, "a part was delivered", func(f *streamFlow) bool { return f.throttled })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			x := &encryption{terminate: true, protocol: c.protocol, originate: c.originate, bandwidth: c.bandwidth}
			conn, b := x.ends(t, r, cmp.Or(c.client, "tcp4"), cmp.Or(c.upstream, "tcp4"))
			a := conn.(*tls.Conn)
			say(t, a, b, "question")
			say(t, b, a, "answer")
			c.last(t, r, a, b)
			closeWrite(t, a.NetConn())
			testwait.Until(t, "the end is noticed", func() (noticed bool) {
				r.e.onLoops(func(f *Flow) { noticed = streamOf(f).cause != CauseNone || streamOf(f).over(up) })
				return noticed || len(r.records) > 0
			})
			if n, err := readToEnd(t, b); int(n) != c.size || err == nil && c.upstream != "unix" { // which cannot be reset
				t.Errorf("%d bytes of %d, and then %v, want a reset", n, c.size, err)
			}
			r.expect(CauseClientTruncated)
		})
	}
	t.Run("the upstream's answer is unread", func(t *testing.T) {
		r := newRig(t, Config{Loops: 1})
		conn, b := (&encryption{terminate: true}).ends(t, r, "tcp4", "tcp4")
		a := conn.(*tls.Conn)
		say(t, a, b, "question")
		say(t, b, a, "part of an answer")
		entered, leave := make(chan struct{}), make(chan struct{})
		r.e.loops[0].Post(loop.Request{Do: func() { close(entered); <-leave }})
		<-entered
		closeWrite(t, rawOf(a))
		arrived(t, a)
		if _, err := io.WriteString(b, "the rest"); err != nil {
			t.Fatal(err)
		}
		arrived(t, b)
		close(leave)
		wantReset(t, b)
		r.expect(CauseClientTruncated)
	})
}
