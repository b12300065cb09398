package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// preamble reads a line that it takes away, and then wants to see a greeting
// that it leaves to the upstream: a PROXY header and a ClientHello in small.
type preamble struct {
	max     int
	timeout time.Duration

	mu    sync.Mutex
	lines []string
	lasts int // calls that were told that no more comes
	calls int
}

const greeting = "hello\n"

func (p *preamble) admit(f *Flow) Cause {
	f.StartSniff(p.max, p.timeout)
	return CauseNone
}

func (p *preamble) sniff(f *Flow, b []byte, last bool) (take int, next SniffNext) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if last {
		p.lasts++
	}
	i := bytes.IndexByte(b, '\n')
	switch {
	case i < 0:
		return 0, SniffMore
	case f.Value() == nil:
		f.SetValue("has a line")
		p.lines = append(p.lines, string(b[:i]))
		return i + 1, SniffMore
	case string(b[:i+1]) == greeting:
		return 0, SniffDone
	}
	return 0, SniffRefuse
}

func (p *preamble) hooks() Hooks { return Hooks{Admit: p.admit, Sniff: p.sniff} }

// Whatever pieces a preamble comes in, the hook sees it, the upstream gets what
// the hook left, and then the rest, spliced where it is long.
func TestSniff(t *testing.T) {
	const line = "a line for the hook"
	all := []byte(line + "\n" + greeting)
	head, pattern := len(all), testnet.NewPattern(7)
	const most = 16 << 20
	for off := 0; off < most; off += testnet.MaxChunk {
		all = append(all, pattern.At(int64(off), testnet.MaxChunk)...)
	}
	for _, size := range []int{0, 1, 100_000, most} {
		for _, piece := range []int{1, 1 << 20} {
			for i, pair := range pairs {
				if size == most && i != 1 || testing.Short() && size > 100_000 {
					continue
				}
				t.Run(fmt.Sprintf("bytes=%d/piece=%d/client=%s/upstream=%s", size, piece, pair[0], pair[1]), func(t *testing.T) {
					r := newRig(t, Config{})
					p := &preamble{max: 4096, timeout: time.Minute}
					a, b := r.late(pair[0], pair[1], ListenConfig{Hooks: p.hooks()})
					said, slow := all[:head+size], head+min(size, 100)
					var wg sync.WaitGroup
					wg.Go(func() {
						if piece == 1 {
							for i := range slow {
								a.Write(said[i : i+1])
							}
							said = said[slow:]
						}
						a.Write(said)
						closeWrite(t, a)
					})
					up := b()
					hear(t, up, greeting)
					got, err := io.ReadAll(up)
					if err != nil || len(got) != size || size > 0 && pattern.Check(0, got) != nil {
						t.Errorf("%d bytes of %d, %v", len(got), size, err)
					}
					wg.Wait()
					say(t, up, a, "and an answer")
					up.Close()
					wantEnd(t, a)
					rec := r.expect(CauseEnd)
					if n := int64(size + len(greeting)); rec.Up.Read != n || rec.Up.Written != n {
						t.Errorf("read %d, written %d, want %d", rec.Up.Read, rec.Up.Written, n)
					}
					if size > 1<<20 && rec.Up.Spliced < int64(size)/2 {
						t.Errorf("%d bytes of %d spliced", rec.Up.Spliced, size)
					}
					if len(p.lines) != 1 || p.lines[0] != line || p.lasts != 0 && size < p.max {
						t.Errorf("lines %q, %d calls with last", p.lines, p.lasts)
					}
				})
			}
		}
	}
}

// late is flow whose upstream is reached later: b waits for it.
func (r *rig) late(client, upstream string, cfg ListenConfig) (a net.Conn, b func() net.Conn) {
	r.t.Helper()
	s := newServer(r.t, upstream)
	a = dial(r.t, r.listen(client, cfg, s.addr))
	return a, func() net.Conn { return s.accept(r.t) }
}

// A preamble that does not come in time, or does not fit, is shown once more
// with last set; then it is refused.
func TestSniffEnds(t *testing.T) {
	const limit = 2 * time.Second
	for _, c := range []struct {
		name string
		max  int
		time time.Duration
		say  string
	}{
		{"silent", 100, limit, ""},
		{"slow", 100, limit, "half a li"},
		{"slow again", 100, limit, "a line\nhal"},
		{"long", 64, time.Minute, string(make([]byte, 1000))},
		{"long again", 64, time.Minute, "a line\n" + string(make([]byte, 1000))},
		{"wrong", 64, time.Minute, "a line\nnot hello\n"},
	} {
		for _, client := range []string{"tcp4", "unix"} {
			t.Run(c.name+"/client="+client, func(t *testing.T) {
				r := newRig(t, Config{})
				r.k.StopClock()
				p := &preamble{max: c.max, timeout: c.time}
				a, _ := r.late(client, "unix", ListenConfig{Hooks: p.hooks()})
				io.WriteString(a, c.say)
				if c.time == limit {
					testwait.Until(t, "the client is there", func() bool { return r.e.flows() == 1 })
					r.pass(limit + tick)
				}
				rec := r.expect(CauseRefused)
				wantReset(t, a)
				if want := c.name != "wrong"; p.lasts == 0 && want || rec.Attempts != 0 || rec.Up.Written != 0 {
					t.Errorf("%d calls with last, %+v", p.lasts, rec)
				}
				if rec.Up.BytesDropped() > int64(c.max) {
					t.Errorf("%d bytes were held, at most %d may be", rec.Up.BytesDropped(), c.max)
				}
			})
		}
	}
}

// last with SniffDone goes on with what there is: nothing, for a silent client.
func TestSniffLastGoesOn(t *testing.T) {
	for _, said := range []string{"", "some bytes"} {
		r := newRig(t, Config{})
		h := Hooks{
			Admit: func(f *Flow) Cause { f.StartSniff(1000, 30*time.Millisecond); return CauseNone },
			Sniff: func(_ *Flow, b []byte, last bool) (int, SniffNext) {
				if last {
					return 0, SniffDone
				}
				return 0, SniffMore
			},
		}
		a, b := r.late("tcp4", "tcp4", ListenConfig{Hooks: h})
		io.WriteString(a, said)
		up := b()
		hear(t, up, said)
		say(t, up, a, "welcome")
		say(t, a, up, "thanks")
		a.Close()
		up.Close()
		r.expect(CauseEnd)
	}
}

// A client that ends its side while it is sniffed has its upstream and its answer.
func TestSniffHalfClose(t *testing.T) {
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			h := Hooks{
				Admit: func(f *Flow) Cause { f.StartSniff(1000, time.Minute); return CauseNone },
				Sniff: func(_ *Flow, b []byte, last bool) (int, SniffNext) {
					if last {
						return len("take this "), SniffDone
					}
					return 0, SniffMore
				},
			}
			a, b := r.late(p[0], p[1], ListenConfig{Hooks: h})
			io.WriteString(a, "take this and pass that")
			closeWrite(t, a)
			up := b()
			hear(t, up, "and pass that")
			wantEnd(t, up)
			say(t, up, a, "bye")
			up.Close()
			wantEnd(t, a)
			r.expect(CauseEnd)
		})
	}
}

// One that resets the connection meanwhile is gone.
func TestSniffReset(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	p := &preamble{max: 1000, timeout: time.Minute}
	l := r.listen("tcp4", ListenConfig{Hooks: p.hooks()}, refusing(t))
	for _, said := range []string{"", "half a li", "a line\nhal"} {
		a := dial(t, l)
		io.WriteString(a, said)
		testwait.Until(t, "the flow is there", func() bool {
			s := r.e.Stats()
			p.mu.Lock()
			defer p.mu.Unlock()
			return s.Flows() == 1 && (said == "" || p.calls > 0)
		})
		reset(t, a)
		if rec := r.expect(CauseClientGone); rec.Attempts != 0 {
			t.Errorf("%+v", rec)
		}
		p.mu.Lock()
		p.calls = 0
		p.mu.Unlock()
	}
}

// A kernel that interrupts and takes little at a time loses nothing, and one that
// fails ends the flow.
func TestSniffFaults(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, p := range pairs {
		r := newRig(t, Config{Loops: 1})
		r.k.Random(seed, 2, map[testkernel.Call][]sys.Errno{testkernel.Recv: {sys.EINTR}, testkernel.Send: {sys.EINTR}}, testkernel.Send)
		pre := &preamble{max: 100_000, timeout: time.Minute}
		h := pre.hooks()
		h.Connected = func(f *Flow, _ *Addr, _ time.Duration, _ error) { f.Preface([]byte("preface ")) }
		s := newServer(t, p[1])
		l := r.listen(p[0], ListenConfig{Hooks: h}, s.addr)
		for range 20 {
			a := dial(t, l)
			io.WriteString(a, "a line\n"+greeting+"more")
			b := s.accept(t)
			hear(t, b, "preface "+greeting+"more")
			say(t, b, a, "fine")
			a.Close()
			b.Close()
			r.expect(CauseEnd)
		}
		r.k.Heal()
		r.k.Fail(testkernel.Recv, sys.ENOMEM, 1)
		io.WriteString(dial(t, l), "a line\n")
		if rec := r.expect(CauseClientGone); !errors.Is(rec.Err, sys.ENOMEM) {
			t.Errorf("%+v", rec)
		}
	}
}

// Built-in upstreams get what was sniffed, too.
func TestSniffBuiltins(t *testing.T) {
	for _, network := range []Network{Echo, Discard} {
		r := newRig(t, Config{})
		p := &preamble{max: 1000, timeout: time.Minute}
		a := dial(t, r.listen("tcp4", ListenConfig{Hooks: p.hooks()}, refusing(t), &Addr{Network: network}))
		io.WriteString(a, "a line\n"+greeting+"and more")
		if network == Echo {
			hear(t, a, greeting+"and more")
		}
		closeWrite(t, a)
		wantEnd(t, a)
		rec := r.expect(CauseEnd)
		if n := int64(len(greeting + "and more")); rec.Up.Read != n || rec.Up.Written != n {
			t.Errorf("%v: %+v", network, rec)
		}
	}
}

// A preface comes first, then what was sniffed, then the rest; an attempt that
// failed leaves no trace of its own.
func TestPreface(t *testing.T) {
	for _, sniffed := range []bool{false, true} {
		for _, p := range pairs {
			t.Run(fmt.Sprintf("sniffed=%v/client=%s/upstream=%s", sniffed, p[0], p[1]), func(t *testing.T) {
				r := newRig(t, Config{})
				pre := &preamble{max: 1000, timeout: time.Minute}
				h := Hooks{Connected: func(f *Flow, to *Addr, _ time.Duration, err error) {
					f.Preface([]byte(fmt.Sprintf("attempt %v ", err == nil)))
					f.Preface([]byte("from the relay "))
				}}
				said := "and more"
				if sniffed {
					h.Admit, h.Sniff = pre.admit, pre.sniff
					said = greeting + said
				}
				s := newServer(t, p[1])
				a := dial(t, r.listen(p[0], ListenConfig{Hooks: h}, refusing(t), refusing(t), s.addr))
				if sniffed {
					io.WriteString(a, "a line\n")
				}
				io.WriteString(a, said)
				b := s.accept(t)
				hear(t, b, "attempt true from the relay "+said)
				say(t, b, a, "fine")
				a.Close()
				wantEnd(t, b)
				b.Close()
				if rec := r.expect(CauseEnd); rec.Up.Read != int64(len(said)) || rec.Up.Written != int64(len(said)) || rec.Attempts != 3 {
					t.Errorf("%+v", rec)
				}
			})
		}
	}
}

// A preface goes out though the client says nothing: the upstream may speak first.
func TestPrefaceOfSilentClient(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.flow("tcp4", "tcp4", ListenConfig{Hooks: Hooks{Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) { f.Preface([]byte("header")) }}})
	hear(t, b, "header")
	say(t, b, a, "banner")
	say(t, a, b, "request")
	a.Close()
	b.Close()
	r.expect(CauseEnd)
}

// The hook sets other bounds each time that the client has been silent for long enough, and hears it then, or refuses it at last.
func TestSniffAgain(t *testing.T) {
	const step = 2 * time.Second
	for _, c := range []struct {
		name       string
		said, then string
		end        bool
		silences   int
		cause      Cause
	}{
		{"in time", "", "hello", false, 1, CauseEnd},
		{"half before", "hel", "lo", false, 2, CauseEnd},
		{"never", "", "", false, 3, CauseRefused},
		{"ended", "hel", "", true, 1, CauseRefused},
		{"too much", "hel", string(make([]byte, 200)), false, 1, CauseRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			r.k.StopClock()
			var lasts atomic.Int32
			var admitted atomic.Bool
			h := Hooks{
				Admit: func(f *Flow) Cause { f.StartSniff(10, step); admitted.Store(true); return CauseNone },
				Sniff: func(f *Flow, b []byte, last bool) (int, SniffNext) {
					if string(b) == "hello" {
						return 0, SniffDone
					}
					if last && lasts.Add(1) < 3 {
						if err := f.StartSniff(100, step); err != nil {
							t.Error(err)
						}
					}
					return 0, SniffMore
				},
			}
			a, b := r.late("tcp4", "tcp4", ListenConfig{Hooks: h})
			io.WriteString(a, c.said)
			testwait.Until(t, "the client is there", admitted.Load)
			if !c.end {
				for range c.silences {
					r.pass(step + tick)
				}
				if got := int(lasts.Load()); got != c.silences {
					t.Fatalf("%d silences, want %d", got, c.silences)
				}
			} else {
				a.(*net.TCPConn).CloseWrite()
			}
			io.WriteString(a, c.then)
			if c.cause == CauseEnd {
				up := b()
				hear(t, up, "hello")
				say(t, up, a, "welcome")
				a.Close()
				up.Close()
			}
			r.expect(c.cause)
		})
	}
}

// The bounds that the hook sets apply at once: also to what stays of bytes that it takes a part of, and to bytes that are more than it asks for.
func TestSniffAgainWithBytes(t *testing.T) {
	const step = 2 * time.Second
	for _, c := range []struct {
		name      string
		take, max int
		passes    bool // time must pass before the hook is told that no more will come
	}{
		{"takes a part", 1, 100, true},
		{"as much as there is", 0, 5, false},
		{"less than there is", 0, 2, false},
		{"takes a part, and what stays is more", 1, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			r.k.StopClock()
			var calls, lasts atomic.Int32
			h := Hooks{
				Admit: func(f *Flow) Cause { f.StartSniff(1000, time.Hour); return CauseNone },
				Sniff: func(f *Flow, b []byte, last bool) (int, SniffNext) {
					if last {
						lasts.Add(1)
						return 0, SniffRefuse
					}
					if len(b) < 5 || calls.Add(1) > 1 {
						return 0, SniffMore
					}
					if err := f.StartSniff(c.max, step); err != nil {
						t.Error(err)
					}
					return c.take, SniffMore
				},
			}
			a, _ := r.late("tcp4", "tcp4", ListenConfig{Hooks: h})
			io.WriteString(a, "hello")
			testwait.Until(t, "the hook has set bounds", func() bool { return calls.Load() > 0 })
			if c.passes {
				r.pass(step + tick)
			}
			r.expect(CauseRefused)
			if lasts.Load() != 1 {
				t.Errorf("told %d times that no more will come, want once", lasts.Load())
			}
			a.Close()
		})
	}
}
