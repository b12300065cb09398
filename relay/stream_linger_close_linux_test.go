package relay

import (
	"cmp"
	"crypto/tls"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// What tells a client that closes without close_notify from one that was cut holds after a hand-over, too, when no process sees all of it: what the
// client has sent before it, and what either process still has.
func TestTLSLingersClientCloses(t *testing.T) {
	carried := func(t *testing.T, r *lingerRig, what string, is func(f *streamFlow) bool) {
		t.Helper()
		testwait.Until(t, what, func() (ok bool) {
			r.e.onLoops(func(f *Flow) { ok = is(streamOf(f)) })
			return ok
		})
	}
	for name, c := range map[string]struct {
		protocol  string
		bandwidth int64
		question  string // before the hand-over
		answer    string
		last      func(t *testing.T, r *lingerRig, a, b net.Conn) // after it, before the client's end
		size      int                                             // of what the upstream gets behind that
		unix      bool                                            // a Unix socket tells of bytes until they are read, TCP only until they are acknowledged
		cut       bool
	}{
		"after an answer":                       {question: "question", answer: "answer"},
		"after another answer":                  {last: func(t *testing.T, r *lingerRig, a, b net.Conn) { say(t, a, b, "question"); say(t, b, a, "answer") }},
		"between frames":                        {protocol: "h2", question: "frame"},
		"before a request":                      {protocol: "http/1.1"},
		"in a request from before the handover": {protocol: "http/1.1", question: "part of a request", cut: true},
		"the client has spoken last":            {question: "question", answer: "answer", unix: true, cut: true, last: func(t *testing.T, r *lingerRig, a, b net.Conn) { say(t, a, b, "another question") }},
		"the upstream has not taken all": {question: "question", answer: "answer", unix: true, cut: true, size: 1000, last: func(t *testing.T, r *lingerRig, a, b net.Conn) {
			before := int64(0)
			r.e.onLoops(func(f *Flow) { before = streamOf(f).half[up].Out })
			a.Write(make([]byte, 1000))
			carried(t, r, "all is in the socket", func(f *streamFlow) bool { return f.half[up].Out == before+1000 })
			say(t, b, a, "go on")
		}},
		"the answer is throttled": {bandwidth: 100, cut: true, last: func(t *testing.T, r *lingerRig, a, b net.Conn) {
			for range 2 {
				b.Write(make([]byte, 12000))
			}
			carried(t, r, "a part was delivered", func(f *streamFlow) bool { return f.throttled })
		}},
	} {
		for _, originate := range []bool{false, true} {
			if c.bandwidth > 0 && !originate {
				continue // the rig has none
			}
			t.Run(cmp.Or(map[bool]string{true: "twice/"}[originate], "once/")+name, func(t *testing.T) {
				r := newLingerRig(t)
				x := &encryption{terminate: true, protocol: c.protocol, originate: originate, bandwidth: c.bandwidth}
				a, b := x.ends(t, r.rig, "tcp4", map[bool]string{true: "unix", false: "tcp4"}[c.unix])
				if c.question != "" {
					say(t, a, b, c.question)
				}
				if c.answer != "" {
					say(t, b, a, c.answer)
				}
				r.next()
				if c.last != nil {
					c.last(t, r, a, b)
				}
				closeWrite(t, a.(*tls.Conn).NetConn())
				testwait.Until(t, "the end is noticed", func() bool {
					noticed := true
					for _, e := range []*Engine{r.e, r.before[0].left()} {
						e.onLoops(func(f *Flow) { noticed = noticed && (streamOf(f).cause != CauseNone || streamOf(f).over(up)) })
					}
					return noticed
				})
				want := CauseClientClosed
				if c.cut {
					want = CauseClientTruncated
				}
				unseen := c.unix // which cannot be reset, and crypto/tls does not tell an end without close_notify from one with it
				if n, err := readToEnd(t, b); int(n) != c.size || (err != nil) != (c.cut && !unseen) {
					t.Errorf("%d bytes of %d, and then %v", n, c.size, err)
				}
				b.Close()
				r.expect(want)
				r.gone(r.before[0])
			})
		}
	}
}
