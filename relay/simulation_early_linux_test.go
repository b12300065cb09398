package relay

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
)

// What comes before a flow relays, in a simulation: it is sniffed, queued, and tries upstreams that nobody listens for.

// simPlan is what a flow does before it relays.
type simPlan struct {
	dead   int  // its first attempts are to addresses where nobody listens
	queued bool // it is queued until it is resumed
	sniff  int  // how many bytes are to be sniffed
}

const (
	simGoodAttempts = 2 // after those that are dead
	simSniffMost    = 64
	simPatience     = 3 * time.Second
	simLife         = 6 * time.Second
	simFirstByte    = 2 * time.Second
	simQueued       = 2 * time.Second
	simConnectMost  = 300 * time.Millisecond
)

func drawPlan(n int) simPlan {
	return simPlan{
		dead:   [...]int{0, 0, 0, 0, 0, 1, 2, attemptsAtOnce + 1}[n%8],
		queued: n>>3%8 == 1,
		sniff:  [...]int{0, 0, 0, 0, 0, 0, 1, 40}[n>>6%8],
	}
}

// admit remembers whose flow it is.
func (s *simulation) admit(f *Flow) Cause {
	_, number := s.process.Number(int(f.owner.(*streams).of(f).fd[sideClient]))
	f.SetValue(number)
	if s.over.NoStreams {
		s.fail("a client is accepted, and memory is short")
	}
	s.limit(f, 0)
	x := s.flowOf(f)
	if name, ok := x.clientName(); ok {
		f.SetClient(name)
	}
	if x.id%3 == 0 {
		t := f.Timeouts()
		t.Life = cmp.Or(t.Life, simForever) + time.Duration(x.id)*time.Millisecond
		f.SetTimeouts(t)
	}
	if x.admitted = true; x.secure.at[sideClient] {
		if err := f.StartSniff(simSniffMost, simPatience); err != nil {
			s.fail("sniff: %v", err)
		}
	} else if x.plan.sniff > 0 {
		if err := f.StartSniff(simSniffMost, simPatience); err != nil {
			s.fail("sniff: %v", err)
		}
	}
	return CauseNone
}

// clientName returns what the hook calls the client of every second flow, as one that a proxy has named.
func (f *simFlow) clientName() (a Addr, ok bool) {
	return Addr{Network: TCP, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, f.id}), 1000)}, f.id%2 == 0
}

// sniff goes on when a flow has enough bytes.
func (s *simulation) sniff(f *Flow, b []byte, last bool) (int, SniffNext) {
	x := s.flowOf(f)
	if x.secure.at[sideClient] {
		if !x.words.told {
			s.reply(f, x, replySniffed)
		}
		return s.terminates(f, x, b, last)
	}
	if half := (simHalf{sent: x.half[up].sent, urgent: x.half[up].urgent}); !half.takes(x.id, up, b) {
		s.fail("flow %d: byte %d that is sniffed is not the one that was sent", x.id, half.got)
	}
	if !x.words.told {
		s.reply(f, x, replySniffed)
	}
	if len(b) < x.plan.sniff {
		return 0, SniffMore
	}
	return 0, SniffDone
}

func (s *simulation) choose(f *Flow, attempt int) *Addr {
	x := s.flowOf(f)
	s.attempts++
	s.limit(f, 1)
	if x.plan.queued && !x.resumed {
		if err := f.Queue(); err != nil {
			s.fail("queue: %v", err)
		}
		x.inQueue, x.queuedAt = f.Ref(), s.world.Elapsed()
		return nil
	}
	if !x.words.told {
		s.reply(f, x, replyChosen)
	}
	network := simNetwork(x.unix[sideUpstream])
	switch {
	case attempt < x.plan.dead:
		return &s.dead[network]
	case attempt >= x.plan.dead+simGoodAttempts+x.words.rudes+x.secure.retries():
		return nil
	case x.builtin != 0:
		s.seen.costs[costBuiltin+x.builtin.String()]++
		return &Addr{Network: x.builtin}
	}
	return &s.to[network]
}

// resume lets a flow that is queued go on.
func (s *simulation) resume(f *simFlow) bool {
	f.resumed = true
	if f.inQueue == (FlowRef{}) {
		return false
	}
	w := f.inQueue
	f.inQueue = FlowRef{}
	s.call(w.Resume)
	return true
}

// answer answers a connect of the relay.
func (s *simulation) answer(i, how int) bool {
	n := s.world.Connecting()
	if n == 0 {
		return false
	}
	e := [...]sys.Errno{0, 0, 0, 0, sys.ECONNREFUSED, simkernel.TimedOut}[how%6]
	if e != 0 {
		s.refusals++
	}
	s.world.Answer(i%n, e)
	return true
}

// explainsEarly reports whether what was done to a flow explains a cause that it has before it relays.
func (s *simulation) explainsEarly(f *simFlow, c Cause) bool {
	age := s.world.Elapsed() - f.began
	switch c {
	case CauseRefused:
		return f.half[up].sent < int64(f.plan.sniff) || f.plan.sniff > 0 && s.world.Elapsed()-f.began >= simPatience
	case CauseNoUpstream:
		return f.plan.dead > attemptsAtOnce || s.refusals >= simGoodAttempts || s.limits || s.scarce
	case CauseConnectTimeout:
		return s.limits && age >= simConnectMost
	case CauseQueueTimeout:
		return s.limits && f.plan.queued && age >= simQueued
	case CauseLife:
		return s.limits && age >= simLife
	case CauseFirstByte:
		return s.limits && age >= simFirstByte && f.half[down].got == 0
	case CauseClientGone:
		return s.scarce || s.limits && f.words.told || f.broke[sideClient] || f.half[up].ended && f.plan.dead > attemptsAtOnce
	case CauseClosed:
		return s.closing
	case CauseDrained:
		return s.drain.ended
	}
	return false
}

// timeouts returns those of the listeners.
func (s *simulation) timeouts() Timeouts {
	t := Timeouts{HalfClosed: -1, Connect: simForever, Queue: simForever, Handshake: simForever}
	if s.idle > 0 {
		t.Idle, t.HalfClosed = s.idle, s.idle/2
	}
	if s.limits {
		t.Connect, t.Queue, t.Life, t.FirstByte = simConnectMost, simQueued, simLife, simFirstByte
		t.Handshake = simHandshake
	}
	return t
}

// closeEngine closes the engine, and checks that nothing is left.
func (s *simulation) closeEngine() {
	s.closing, s.keeper.fails = true, 0
	for _, f := range s.flows { // those that wait to be accepted are reset
		f.lost = f.lost || !f.admitted
	}
	s.process.DieAfter(0)
	if s.keeper.real != nil {
		s.keeper.real.leaves()
	}
	e := &Engine{s.core}
	if err := e.Close(); err != nil {
		s.fail("close: %v", err)
	}
	for _, f := range s.left() {
		if f.records != 1 && !f.lost {
			s.fail("flow %d has no record after the engine was closed", f.id)
		}
	}
	s.keeper.closeDropped()
	if len(s.keeper.held) != 0 || s.process.Open() != s.keeper.connections() {
		s.fail("%d things are held after the engine was closed, and %d descriptors are open", len(s.keeper.held), s.process.Open())
	}
	for _, st := range s.core.streams.all { // whose ledger is gone
		if st.env.Held != 0 || st.slab.Live != 0 {
			s.fail("%d bytes of buffers and %d flows are left after the engine was closed", st.env.Held, st.slab.Live)
		}
	}
	s.core = nil
}

// checkRecord checks what a record says beside the bytes and the cause.
func (s *simulation) checkRecord(f *simFlow, r *Record) {
	network := simNetwork(f.unix[sideUpstream])
	switch {
	case r.Attempts > 0 && r.Upstream != s.to[network] && r.Upstream != s.dead[network] && (f.builtin == 0 || r.Upstream != Addr{Network: f.builtin}):
		s.fail("flow %d has the upstream %s", f.id, r.Upstream)
	case r.Cause == CauseEnd && s.attemptsWrong(f, r) && s.refusals == 0 && !s.limits && !s.scarce && (s.handshakes == 0 || !f.secure.at[sideUpstream]): // a handshake that others wait for may be given up
		s.fail("flow %d has made %d attempts, of which %d had to fail", f.id, r.Attempts, f.plan.dead)
	case r.Down.Read > 0 && r.FirstByte == 0 && r.Cause != CauseCrashed:
		s.fail("flow %d has %d bytes from its upstream, and does not say when the first came", f.id, r.Down.Read)
	case r.Up.Written > 0 && r.Connect == 0, r.Duration < r.Connect && f.builtin == 0, r.Duration < r.Queued, r.Queued > 0 && !f.plan.queued:
		s.fail("flow %d says that it took %v, of which it was queued for %v, and was connected after %v", f.id, r.Duration, r.Queued, r.Connect)
	case r.Listener == nil || r.Listener.Addr() != s.at[simNetwork(f.unix[sideClient])]:
		s.fail("flow %d is said to be a client of another listener", f.id)
	}
	client := r.Peer
	if name, ok := f.clientName(); ok && f.admitted {
		client = name
	}
	if r.Client != client {
		s.fail("flow %d is said to be of %s, rather than of %s", f.id, r.Client, client)
	}
	if waited := s.world.Elapsed() - f.queuedAt; f.inQueue != (FlowRef{}) && r.Queued < waited-50*time.Millisecond {
		s.fail("flow %d ends while it is queued, for %v, and its record says %v", f.id, waited, r.Queued)
	}
}

// fault makes calls fail, of this process, and of the next one as well.
func (s *simulation) fault(kind, every int) {
	s.faults = s.seen.counted(simFaults(kind, every))
	s.failCalls(s.faults)
	switch simFaultKind(kind) {
	case simLaterFaults: // a listener that closes then does not see who comes next
		s.drain.resets = true
	case simPipeFaults:
		if pipes := s.core.streams.pipes; pipes != nil {
			s.call(pipes.Drain) // so that others are needed
		}
	case simTwiceFaults, simWatchFaults, simMoveFaults, simSendFaults:
		s.scarce = true
	}
}
