package relay

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/tlsconn"
)

// TLS in a simulation: in some schedules it begins or ends at the relay, at a flow's client, its upstream, or both. The peers are those of crypto/tls, each with
// a connection that never waits.
//
//	client ═ TLS ═ relay ═ TLS ═ upstream
//
// Nothing here has a goroutine that runs by itself: a handshake, of a peer or of the relay, is a coroutine. Those of the relay compute when the schedule says so,
// so that anything may happen before.

// simTask is a handshake that goes on when it is told to, until it waits.
type simTask struct {
	next func() (struct{}, bool)
	stop func()
}

var errTaskStopped = errors.New("the task was stopped")

func newTask(do func(pause func())) *simTask {
	t := new(simTask)
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if cause := recover(); cause != nil && cause != errTaskStopped {
				panic(cause)
			}
		}()
		do(func() {
			if !yield(struct{}{}) {
				panic(errTaskStopped)
			}
		})
	})
	return t
}

// fails reports whether a flow with TLS has failed, and waits for a peer that may wait for what could not be sent: it does so for failedDrain.
func (s *simulation) fails() (some bool) {
	all := s.core.streams.all
	for _, l := range s.lingerers {
		all = append(slices.Clip(all), l.core.streams.all...)
	}
	for _, st := range all {
		st.slab.Each(func(f *streamFlow) { some = some || (f.tls != nil || f.hasInner()) && f.cause != CauseNone })
	}
	return some
}

// handshakes returns since when those are under way that can be given up when others wait.
func (s *streams) handshakes() map[ref]time.Duration {
	var begun map[ref]time.Duration
	for i := range s.tlsLoop.begun.len() {
		if begun == nil {
			begun = make(map[ref]time.Duration)
		}
		x := s.tlsLoop.begun.ring[(s.tlsLoop.begun.head+i)%len(s.tlsLoop.begun.ring)]
		begun[x.ref] = max(begun[x.ref], x.at)
	}
	return begun
}

// computes reports whether the relay has handshakes that may have something to compute.
func (s *simulation) computes() bool { return len(s.tasks) > 0 }

// compute lets one of the relay's handshakes go on.
func (s *simulation) compute(n int) bool {
	if !s.computes() {
		return false
	}
	n %= len(s.tasks)
	s.stepper.Aside(func() {
		if _, more := s.tasks[n].next(); !more {
			s.tasks = append(s.tasks[:n], s.tasks[n+1:]...)
		}
	})
	return true
}

// computeAll lets all of them go on.
func (s *simulation) computeAll() {
	for i := len(s.tasks) - 1; i >= 0; i-- {
		s.compute(i)
	}
}

// computeToEnd does so until there are none, when the loops have ended, which abort them.
func (s *simulation) computeToEnd() {
	for range 4 {
		s.computeAll()
	}
	if s.computes() {
		s.fail("%d handshakes go on, and their loops have ended", len(s.tasks))
	}
}

// dropTasks ends those of a process that has ended.
func (s *simulation) dropTasks() {
	for _, t := range s.tasks {
		t.stop()
	}
	s.tasks = nil
}

// simSecure is what a flow has of TLS.
type simSecure struct {
	at      [2]bool // by side
	version uint16
	alpn    string  // what is agreed on by ALPN
	hybrid  bool    // the key exchange has long messages
	sniff   int     // how many bytes are sniffed before its TLS begins
	rude    [2]int  // by side, how its handshake fails, of the first upstream: see the constants
	rudes   int     // how many upstreams have failed so
	always  bool    // all upstreams do
	fin     bool    // close_notify is followed by the end of the connection
	began   [2]bool // by side: the relay has begun
	told    [2]int  // by side: how often the relay has said that a handshake has succeeded
	up      bool    // the upstream's has
	peer    [2]*simPeer
	refused bool
	left    int     // upstreams that have gone during their handshake
	cut     [2]bool // by side: its connection has ended without an end of TLS, and not within a record
	hadAll  int64   // what its upstream had sent when the client left, if it had got all of that; else -1
	from    int     // the relay's socket towards the upstream that is connected
}

// How a peer fails in its handshake.
const (
	rudeNot     = iota
	rudeGarbage // it says what is not TLS
	rudeName    // the relay's or the upstream's certificate is for another name
	rudeEnd     // it ends its connection after its first flight
	rudeStall   // it does not go on until all settles
	rudeKinds
)

func drawSecure(secure, plan int) (x simSecure) {
	if secure == 0 {
		return x
	}
	n := secure + plan
	x.alpn = [...]string{"", "", "h2", "http/1.1"}[n/11%4]
	x.at = [...][2]bool{{}, {sideClient: true}, {sideUpstream: true}, {true, true}, {true, true}}[n%5]
	n /= 5
	x.version = [...]uint16{tls.VersionTLS12, tls.VersionTLS13, tls.VersionTLS13}[n%3]
	x.hybrid = n%7 == 0
	x.sniff = [...]int{0, 0, 0, 1, 40}[n%5]
	x.fin = n%2 == 0
	if n = (secure*31 + plan*17) % 1009; n%4 == 0 {
		side := n / 4 % 2
		x.rude[side] = n / 8 % rudeKinds
		x.always = side == sideUpstream && n/64%3 == 0 && x.rude[side] != rudeStall
	}
	return x
}

// retries is how many attempts a flow has besides others, because handshakes with its upstream fail.
func (x *simSecure) retries() int { return min(x.rudes, 1) + x.left }

func (x *simSecure) has() bool { return x.at[sideClient] || x.at[sideUpstream] }

// sniffed is how many bytes of a direction can have been read at most that are no plain ones. They are those of TLS when that begins, once the client
// has all of its replies.
func (f *simFlow) sniffed(h int) int64 {
	x := &f.secure
	if h == up && x.at[sideClient] && (!x.began[sideClient] || f.words.told && x.told[sideClient] == 0) {
		return simSniffMost
	}
	return 0
}

// simCertificate returns a certificate for a name. Its key is always the same, so that it always has the same length.
func simCertificate(name string) (tls.Certificate, *x509.CertPool) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// simTLSKey says which configuration it is.
type simTLSKey struct {
	server, hybrid, rude bool
	version              uint16
	alpn                 string
}

const simName, simOtherName = "relay.example", "other.example"

// simTLSConfigs has all configurations.
var simTLSConfigs = sync.OnceValue(func() map[simTLSKey]*tls.Config {
	all := make(map[simTLSKey]*tls.Config)
	good, pool := simCertificate(simName)
	other, _ := simCertificate(simOtherName)
	for i := range 3 << 4 {
		k := simTLSKey{server: i&1 > 0, hybrid: i&2 > 0, rude: i&4 > 0, version: tls.VersionTLS12, alpn: [...]string{"", "h2", "http/1.1"}[i>>4]}
		if i&8 > 0 {
			k.version = tls.VersionTLS13
		}
		c := &tls.Config{MinVersion: k.version, MaxVersion: k.version, KeyLogWriter: tlsconn.Marked{}}
		if k.alpn != "" {
			c.NextProtos = []string{k.alpn}
		}
		if !k.hybrid {
			c.CurvePreferences = []tls.CurveID{tls.X25519}
		}
		switch {
		case !k.server:
			c.RootCAs, c.ServerName = pool, simName
			if k.rude {
				c.ServerName = simOtherName
			}
		case k.rude:
			c.Certificates = []tls.Certificate{other}
		default:
			c.Certificates = []tls.Certificate{good}
		}
		all[k] = c
	}
	return all
})

func (x *simSecure) config(server, rude bool) *tls.Config {
	return simTLSConfigs()[simTLSKey{server: server, hybrid: x.hybrid, rude: rude, version: x.version, alpn: x.alpn}]
}

// terminates is the hook that sniffs a client with TLS.
func (s *simulation) terminates(f *Flow, x *simFlow, b []byte, last bool) (int, SniffNext) {
	if len(b) == 0 || len(b) < x.secure.sniff && !last {
		return 0, SniffMore
	}
	if err := f.Terminate(x.secure.config(true, false)); err != nil {
		s.fail("terminate: %v", err)
	}
	x.secure.began[sideClient] = true
	s.noSplice(f, sideClient)
	return 0, SniffDone
}

// originates has a flow whose upstream is connected begin its TLS there.
func (s *simulation) originates(f *Flow, x *simFlow) {
	x.secure.from, _ = s.process.Number(int(f.owner.(*streams).of(f).fd[sideUpstream]))
	if !x.secure.at[sideUpstream] {
		if x.secure.has() {
			s.noSplice(f, sideClient)
		}
		return
	}
	if err := f.Originate(x.secure.config(false, false)); err != nil {
		s.fail("originate: %v", err)
	}
	x.secure.began[sideUpstream] = true
	s.noSplice(f, sideUpstream)
}

// noSplice notes that a flow is copied, whatever it carries.
func (s *simulation) noSplice(f *Flow, side int) {
	for other, fd := range f.owner.(*streams).of(f).fd {
		if fd >= 0 {
			x := s.kernel.source(int(fd))
			x.never = !s.world.KernelTLS
			if other == side {
				x.secure = true
			}
		}
	}
}

// secured is the hook that is told of a handshake.
func (s *simulation) secured(f *Flow, side Side, state *tls.ConnectionState, _ time.Duration, err error) Cause {
	x := s.flowOf(f)
	p := &x.secure
	switch {
	case !p.at[side] || (state == nil) != (err != nil):
		s.fail("flow %d: a handshake with the %v: %v", x.id, side, err)
	case err == nil && (!state.HandshakeComplete || state.Version != p.version || state.NegotiatedProtocol != p.alpn):
		s.fail("flow %d: the state of TLS with the %v is %+v", x.id, side, state)
	case err == nil && (p.rude[side] != rudeNot && p.rude[side] != rudeStall) && !(side == SideUpstream && p.rudes > 0) && !(side == SideClient && p.version == tls.VersionTLS12):
		s.fail("flow %d: the handshake with the %v should not have succeeded", x.id, side)
	}
	if x.half[up].got > 0 && p.at[sideUpstream] {
		s.fail("flow %d: its upstream has something of the client, and a handshake is just over", x.id)
	}
	if err != nil {
		s.seen.costs[fmt.Sprintf("%v: a handshake that fails", side)]++
		if side == SideUpstream {
			x.secure.refused = true
		}
		return CauseNone
	}
	s.seen.costs[fmt.Sprintf("%v: %s", side, tls.VersionName(state.Version))]++
	if p.alpn != "" {
		s.seen.costs[fmt.Sprintf("%v: %s", side, p.alpn)]++
	}
	p.told[side]++
	p.up = p.up || side == SideUpstream
	return CauseNone
}

// explainsTLS reports whether what was done to a flow explains a cause that has to do with TLS.
func (s *simulation) explainsTLS(f *simFlow, c Cause) bool {
	x, age := &f.secure, s.world.Elapsed()-f.began
	late := age >= simHandshake && (s.limits || s.handshakes > 0)
	switch c {
	case CauseRefused: // it was sniffed
		return x.at[sideClient] && !x.began[sideClient] && (f.broke[sideClient] || age >= simPatience)
	case CauseHalfClosed:
		return s.idle > 0 && s.world.Elapsed()-f.movedAt >= s.idle/2 && (x.cut[sideClient] || x.cut[sideUpstream])
	case CauseClientTLS:
		return x.at[sideClient] && (f.broke[sideClient] || late)
	case CauseUpstreamTLS:
		return x.at[sideUpstream] && (f.broke[sideUpstream] || late || x.always || s.refusals > 0 || s.scarce)
	case CauseClientTruncated:
		return x.at[sideClient] && f.broke[sideClient] && (s.kernelTLS || !f.leftWell())
	case CauseUpstreamTruncated:
		return x.at[sideUpstream] && f.broke[sideUpstream]
	case CauseClientClosed:
		return x.at[sideClient] && f.broke[sideClient] && (f.half[down].sent > 0 || f.builtin != 0 || x.alpn == "h2" || x.alpn == "http/1.1" && f.half[up].sent == 0)
	case CauseEnd: // who was told that nothing more comes may leave
		told := [2]bool{f.builtin == 0 && (f.half[down].ended || x.cut[sideUpstream]), f.half[up].ended || x.cut[sideClient]}
		return x.at[sideClient] && f.broke[sideClient] && told[sideClient] || x.at[sideUpstream] && f.broke[sideUpstream] && told[sideUpstream]
	case CauseCrashed: // TLS is not handed over
		return (x.began[sideClient] || x.began[sideUpstream]) && !f.kept
	}
	return false
}

// leftWell reports whether a client that has agreed on HTTP/2 has closed its connection at the end of a record, when it had got all that its upstream,
// without TLS, had sent, and that this has sent nothing since.
func (f *simFlow) leftWell() bool {
	x, h := &f.secure, &f.half[down]
	return x.alpn == "h2" && x.cut[sideClient] && !x.at[sideUpstream] && f.fd[sideUpstream] >= 0 && h.got == h.sent && !h.ended && f.builtin == 0 && f.pace.rate == 0 && x.hadAll == h.ever()
}

// ever is how many bytes a side has sent, urgent ones included.
func (h *simHalf) ever() int64 { return h.sent + int64(len(h.urgent)) }

// cuts is called when the connection of a side ends without an end of TLS, and not within a record.
func (f *simFlow) cuts(side int) {
	f.secure.cut[side] = true
	if h := &f.half[down]; side == sideClient {
		if f.secure.hadAll = -1; h.got == h.sent {
			f.secure.hadAll = h.ever()
		}
	}
}

// simHandshake is Timeouts.Handshake, if there are limits.
const simHandshake = time.Second

// secureFlow draws a flow's TLS. A client with TLS is sent replies before it begins, and never afterwards.
func (s *simulation) secureFlow(f *simFlow, plan int) {
	f.secure = drawSecure(s.secure, plan)
	if f.builtin != 0 {
		f.secure.at[sideUpstream] = false // for lack of Hooks.Connected
	}
	if f.secure.at[sideClient] {
		f.plan.sniff = 0
		r := &f.words.reply
		*r = [4]int{replySniffed: r[0] + r[1] + r[2] + r[3]}
	}
}

// metTLS is called when an upstream has got a first byte, and reports whether it is one of TLS, or of a flow that has gone.
func (s *simulation) metTLS(fd int, first byte) bool {
	if s.secure == 0 {
		return false
	}
	_, from := s.peers.Number(fd)
	for _, f := range s.flows {
		if gone := f.secure.from != from && first == simByte(f.id, up, 0); from == 0 || !f.secure.at[sideUpstream] || f.secure.from != from && !gone {
			continue
		} else if gone { // a preface of an attempt that was given up
			s.peers.Close(fd)
			return true
		}
		if f.fd[sideUpstream] >= 0 {
			if p := f.secure.peer[sideUpstream]; p != nil && f.secure.up {
				s.fail("flow %d has a second connection to its upstream, and the first one has TLS", f.id)
			}
			s.leaveTLS(f)
		}
		f.fd[sideUpstream] = fd
		s.newPeer(f, sideUpstream, first)
		return true
	}
	if gone := first == recordHandshake; gone {
		s.peers.Close(fd)
		return true
	}
	return false
}

// recordHandshake is the first byte of TLS: RFC 8446, 5.1.
const recordHandshake = 22

// stopPeers ends the handshakes of peers.
func (s *simulation) stopPeers() {
	for _, f := range s.flows {
		for _, p := range f.secure.peer {
			p.stop()
		}
	}
}

// uncounted is how many bytes of a direction can have arrived at most that were not counted as written: of what is encrypted at once, nobody knows which part
// has been sent when the rest cannot be.
func (f *simFlow) uncounted(h int) int64 {
	if dst := f.sender(h); f.secure.at[dst] && f.mayReset() {
		return simBurst
	}
	return 0
}

// simBurst is how much is encrypted at once.
const simBurst = 64 << 10
