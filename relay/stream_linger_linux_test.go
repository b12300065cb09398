package relay

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// A lingerRig is an engine that hands over to the next one in the same process, and lingers.
type lingerRig struct {
	*rig
	holder *memoryHolder
	before []*Engine // those that have handed over
}

func newLingerRig(t *testing.T) *lingerRig {
	h := newMemoryHolder(t)
	return &lingerRig{rig: newRig(t, lingerConfig(h, nil)), holder: h}
}

func lingerConfig(h *memoryHolder, held []hold.Held) Config {
	return Config{Loops: 2, MaxPipes: 8, Keep: &hold.Keep{After: -1, Holder: h, Linger: true, Held: held}}
}

// next hands over to another engine, which has the same listeners and all flows.
func (r *lingerRig) next() {
	r.t.Helper()
	old := r.e
	old.mu.Lock()
	var listeners []*Listener
	for l := range old.listeners {
		listeners = append(listeners, l)
	}
	old.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var pipes []*pump.Pipe
	for p := old.streams.pipes.Get(); p != nil; p = old.streams.pipes.Get() {
		pipes = append(pipes, p)
	}
	for _, p := range pipes {
		old.streams.pipes.Put(p)
	}
	stats := old.Stats()
	before, refused := stats.Total(), stats.PipesRefused
	if err := old.HandOver(ctx); err != nil {
		r.t.Fatal(err)
	}
	stats = old.Stats()
	if after := stats.Total(); after.BytesWritten < before.BytesWritten || after.Connects < before.Connects || after.Wakeups < before.Wakeups || stats.PipesRefused < refused || refused == 0 {
		r.t.Errorf("counters decrease when an engine has handed over: %+v and %d pipes refused, then %+v and %d", before, refused, after, stats.PipesRefused) // somebody may still look at them
	}
	r.before = append(r.before, old)
	r.t.Cleanup(func() {
		old.Close()
		for _, s := range old.streams.all {
			s.keep.ledger.Close()
		}
	})
	var held []hold.Held
	for _, kind := range []holdKind{holdLedger, holdListener, holdPipe, holdFlow} {
		held = append(held, r.holder.of(kind)...)
	}
	e, err := newEngine(lingerConfig(r.holder, held), r.k)
	if err != nil {
		r.t.Fatal(err)
	}
	r.e = e
	for _, l := range listeners {
		if _, err := e.Listen(l.addr, *l.cfg.Load()); err != nil {
			r.t.Fatal(err)
		}
	}
	restored, err := e.Restore(RestoreConfig{})
	if err != nil || restored.TotalLost() > 0 {
		r.t.Fatalf("%+v: %v", restored, err)
	}
}

// gone waits until an engine that has handed over has nothing left.
func (r *lingerRig) gone(old *Engine) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := old.Drain(ctx); err != nil {
		r.t.Errorf("an engine lingers with %d flows: %v", old.Stats().Flows(), err)
	}
}

// Flows with TLS go on through several hand-overs, in the middle of what they carry, and are flows of the last engine to the end.
func TestTLSLingers(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair[0]+"-"+pair[1], func(t *testing.T) {
			eachEncryption(t, func(t *testing.T, x *encryption) {
				const size = 8 << 20
				r := newLingerRig(t)
				a, b := x.ends(t, r.rig, pair[0], pair[1])
				done := make(chan [2]testnet.Report, 1)
				go func() {
					other := make(chan testnet.Report, 1)
					go func() {
						other <- testnet.Play(b, testnet.Script{Send: 2 * size, SendSeed: 2, SendChunk: 70_000, Recv: size, RecvSeed: 1})
					}()
					one := testnet.Play(a, testnet.Script{Send: size, SendSeed: 1, SendChunk: 10_000, Recv: 2 * size, RecvSeed: 2})
					done <- [2]testnet.Report{one, <-other}
				}()
				for range 3 {
					moved := func() (n int64) {
						r.e.onLoops(func(f *Flow) { n += f.owner.transfer(f, up).Written + f.owner.transfer(f, down).Written })
						return n
					}
					before := moved()
					testwait.Until(t, "the flow carries, or has ended", func() bool { return moved() > before || r.e.flows() == 0 })
					if r.e.flows() == 0 {
						break
					}
					r.next()
				}
				for _, report := range <-done {
					if report.Err != "" {
						t.Errorf("%+v", report)
					}
				}
				rec := r.expect(CauseEnd)
				if rec.Up.Written != size || rec.Down.Written != 2*size || rec.Up.Read != size || rec.Down.Read != 2*size {
					t.Errorf("%+v", rec)
				}
				for _, d := range []*stats.TLS{rec.ClientTLS, rec.UpstreamTLS} {
					if d != nil && (d.Version != tls.VersionTLS13 || d.CipherSuite == 0 || d.ServerName != "test.example" || d.Protocol != "test" || d.Received <= 0 || d.Handshake <= 0) {
						t.Errorf("%+v", d)
					}
				}
				if (rec.ClientTLS != nil) != x.terminate || (rec.UpstreamTLS != nil) != x.originate {
					t.Errorf("client %v, upstream %v", rec.ClientTLS, rec.UpstreamTLS)
				}
				for _, old := range r.before {
					r.gone(old)
				}
			})
		})
	}
}

// What has ended before a hand-over stays so, and the other direction goes on; what ends afterwards ends well.
func TestTLSLingersHalfClosed(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for _, first := range []string{"client", "upstream"} {
			for _, when := range []string{"before", "after"} {
				t.Run(first+" "+when, func(t *testing.T) {
					r := newLingerRig(t)
					a, b := x.ends(t, r.rig, "tcp4", "tcp4")
					say(t, a, b, "up")
					say(t, b, a, "down")
					if first == "upstream" {
						a, b = b, a
					}
					if when == "after" {
						r.next()
					}
					closeWrite(t, a)
					wantEnd(t, b)
					if when == "before" {
						r.next()
					}
					for range 3 {
						say(t, b, a, "still open")
						r.next()
					}
					closeWrite(t, b)
					wantEnd(t, a)
					r.expect(CauseEnd)
					for _, old := range r.before {
						r.gone(old)
					}
				})
			}
		}
	})
}

// An end without close_notify is a cut as before, and so is a reset: the other side sees it after all that came before, and the
// record says why.
func TestTLSLingersCut(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for side := range 2 {
			for _, how := range []string{"truncated", "reset"} {
				secure := side == sideClient && x.terminate || side == sideUpstream && x.originate
				if how == "truncated" && !secure {
					continue
				}
				t.Run(fmt.Sprintf("side=%d/%s", side, how), func(t *testing.T) {
					const size = 100_000
					r := newLingerRig(t)
					a, b := x.ends(t, r.rig, "tcp4", "tcp4")
					say(t, a, b, "up")
					say(t, b, a, "down")
					r.next()
					say(t, a, b, "up")
					say(t, b, a, "down")
					if side == sideUpstream {
						a, b = b, a
					}
					cause := [2]Cause{CauseClientTruncated, CauseUpstreamTruncated}[side]
					if how == "truncated" {
						go func() {
							a.Write(make([]byte, size))
							closeWrite(t, a.(*tls.Conn).NetConn())
						}()
					} else {
						cause = [2]Cause{CauseClientReset, CauseUpstreamReset}[side]
						inner := a
						if secure {
							inner = a.(*tls.Conn).NetConn()
						}
						inner.(*net.TCPConn).SetLinger(0)
						inner.Close()
					}
					b.SetReadDeadline(time.Now().Add(patience))
					n, err := io.Copy(io.Discard, b)
					if how == "truncated" && int(n) != size || err == nil {
						t.Errorf("%d bytes, and then %v", n, err)
					}
					r.expect(cause)
					for _, old := range r.before {
						r.gone(old)
					}
				})
			}
		}
	})
}

// A flow that is killed in the next engine ends on both sides, and one whose process is gone looks complete to nobody.
func TestTLSLingersEnded(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for _, who := range []string{"killed", "closed"} {
			t.Run(who, func(t *testing.T) {
				r := newLingerRig(t)
				a, b := x.ends(t, r.rig, "tcp4", "tcp4")
				say(t, a, b, "up")
				say(t, b, a, "down")
				r.next()
				say(t, a, b, "up")
				want := CauseKilled
				if who == "killed" {
					var id uint64
					r.e.onLoops(func(f *Flow) { id = f.ID() })
					if !r.e.Kill(id, CauseKilled) {
						t.Fatal("no flow")
					}
				} else {
					want = CauseCrashed
					r.before[0].Close()
				}
				for _, c := range []net.Conn{a, b} {
					c.SetReadDeadline(time.Now().Add(patience))
					if n, err := c.Read(make([]byte, 10)); n > 0 || err == nil || err == io.EOF {
						t.Errorf("%d bytes and %v", n, err)
					}
				}
				r.expect(want)
			})
		}
	})
}

// A client in the middle of its handshake is waited for.
func TestTLSLingersHandshake(t *testing.T) {
	r := newLingerRig(t)
	r.e.handshakeLast = patience
	x := &encryption{terminate: true}
	s := newServer(t, "tcp4")
	c := dial(t, r.listen("tcp4", x.config(), s.addr))
	half := &halting{Conn: c, goOn: make(chan struct{})}
	a := tls.Client(half, clientTLS())
	ready := make(chan error, 1)
	go func() { ready <- a.Handshake() }()
	testwait.Until(t, "the handshake is under way", func() bool {
		early := int64(0)
		for _, s := range r.e.streams.all {
			s.loop.Ask(func() { early += s.earlyTLS() })
		}
		return early == 1
	})
	old := r.e
	go func() {
		testwait.For(old.stopping.Load)
		close(half.goOn)
	}()
	r.next()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	b := s.accept(t)
	say(t, a, b, "up")
	say(t, b, a, "down")
	a.Close()
	b.Close()
	r.record()
	r.gone(r.before[0])
}

// halting is a connection whose writes wait after the first one.
type halting struct {
	net.Conn
	goOn  chan struct{}
	begun bool
}

func (h *halting) Write(p []byte) (int, error) {
	if h.begun {
		<-h.goOn
	}
	h.begun = true
	return h.Conn.Write(p)
}
