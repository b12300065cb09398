package relay

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// simulation is one run of an engine in a simulated kernel: one loop, clients and upstreams of TCP and Unix, a holder, and processes that die in
// the middle of a call and are followed by the next one. Nothing happens but what it does, so that the same steps are the same run.
//
// Each byte that a peer sends says whose it is, in which direction it goes and which one of its stream it is. So a byte that arrives is
// the next one, or it is somebody else's, lost, moved or sent twice.
type simulation struct {
	world    *simkernel.World
	peers    *simkernel.Process // clients and upstreams
	process  *simkernel.Process // the relay
	keeper   *simHolder
	at       [simNetworks]Addr // where the relay listens
	to       [simNetworks]Addr // where upstreams listen
	dead     [simNetworks]Addr // where nobody listens
	upstream [simNetworks]int  // the upstreams' listening sockets

	core    *core
	stepper *loop.Stepper

	flows     []*simFlow
	accepted  []int // by the upstreams, of clients that nobody knows yet
	diesNext  int   // the next process dies at this place, when it restores
	deaths    int
	upgrades  int
	delivered int64
	spliced   int64 // by the relay, and how many flows a process has gone on with, at the end
	restored  int64
	simSettings
	processes    int
	faults       func(simkernel.Call, int) (int, sys.Errno) // of the next process, while it restores
	scarce       bool                                       // the kernel had no descriptors or memory at times
	vanished     loopCounters                               // of ledgers that could not be read
	totals       simTotals
	acceptErrors int64     // of all processes
	recorded     simCounts // by all records
	seen         simSeen
	looked       simLooked
	attempts     int  // to connect to an upstream
	refusals     int  // of connects, which were refused, or timed out
	closing      bool // the engine was closed
	settling     bool // nothing new happens any more
	begun        begunWith
	kernel       *costKernel
	drain        simDrain
	over         simOverload
	socket       int            // which of simSockets listeners have
	peersDo      func()         // between two calls of the relay
	dying        func()         // is called when a process has died, and its engine is still there
	damaged      bool           // a ledger was
	spoiled      map[*byte]bool // the memory of such a ledger
	restoring    bool           // the process has not restored all flows yet
	wrong        error
	scratch      *[simPeriod]byte
	tasks        []*simTask // the relay's handshakes
	lingerers    []*simLingerer
}

// The networks of clients and of upstreams.
const (
	simTCP = iota
	simUnix
	simNetworks
)

// simSettings are those of a run.
type simSettings struct {
	slow         bool          // what is sent is in flight for a while
	after        int           // Keep.After: 0 is at once
	idle         time.Duration // Timeouts.Idle, and twice Timeouts.HalfClosed; 0: none
	slowConnects bool          // so are connects
	backlog      int           // of upstreams; 0: the most
	limits       bool          // there are other time-outs
	files        int           // descriptors that a process may have; 0: as many as it likes
	loops        int           // 0: one
	changes      bool          // the next process has another number of them
	close        bool          // at the end, the engine is closed
	early        bool          // a process may die, and calls fail, from its first call on, rather than when its engine is made
	pipes        int           // the most; 0: 4, -1: the default, -2: none
	updates      int           // listeners have socket options that change, drawn with this; 0: they do not
	words        int           // something is said before flows relay, drawn with this; 0: nothing is
	builtins     int           // upstreams of flows are built in, drawn with this; 0: they are not
	rates        int           // flows have bandwidths, drawn with this; 0: they do not
	real         int           // the keeper is the real one, and its times and bounds are drawn with this; 0: it is simHolder
	busy         int           // peers do something between two calls of the relay, drawn with this; 0: they do not
	secure       int           // flows have TLS, drawn with this; 0: they do not
	linger       bool          // a process that has handed over goes on with the TLS of its flows
	handshakes   int           // how many of a loop's may be under way; 0: the default
	kernelTLS    bool          // the kernel has kTLS
	trace        func(c simkernel.Call, n int)
}

// simCounts count bytes.
type simCounts struct{ read, written, spliced int64 }

// simFlow is a client, and its upstream once that is known.
type simFlow struct {
	id      byte
	number  int     // of the client's socket
	unix    [2]bool // by side: it is a Unix socket, and not one of TCP
	fd      [2]int  // of the peers; -1: none
	half    [2]simHalf
	records int
	record  Record   // the last one
	written [2]int64 // by direction, as the record says

	// What was done to it. If there is nothing, it delivers everything and ends well.
	broke    [2]bool // a peer has reset its connection, or closed it before both directions had ended
	lost     bool    // its process died before it was kept
	inTurn   bool    // a process has died in its turn
	crashed  bool    // too many have
	timedOut bool    // or had no upstream, or was closed, or looked reset

	// What a peer got that only an end of the flow explains. It may get that in the turn that ends it, before the turn tells so.
	unexplained string

	plan         simPlan
	builtin      Network // the upstream, if it is built in
	words        simWords
	pace         simPace
	secure       simSecure
	lingerer     *simLingerer // the process that has its TLS, after a hand-over
	lingererDied bool
	began        time.Duration
	admitted     bool
	resumed      bool    // it may go on if it is queued
	inQueue      FlowRef // it is queued
	queuedAt     time.Duration

	kept    bool // by the process that runs, or by the one before, as long as flows are restored
	ref     ref
	loop    int
	moved   int64         // bytes, by all processes
	movedAt time.Duration // when that changed last
	told    simTold
}

// mayReset reports whether something was done to the flow because of which its peers may be reset.
func (f *simFlow) mayReset() bool {
	return f.broke[0] || f.broke[1] || f.lost || f.crashed || f.timedOut
}

// explains reports whether what was done to a flow explains the cause in its record.
func (s *simulation) explains(f *simFlow, c Cause) bool {
	quiet := s.world.Elapsed() - f.movedAt
	if s.explainsTLS(f, c) || (f.lingererDied || s.lingererFails(f)) && (c == CauseClientReset || c == CauseUpstreamReset) { // it had told of an end
		return true
	}
	switch c {
	case CauseEnd:
		return f.half[up].ended && f.half[down].ended
	case CauseClientReset:
		return f.broke[sideClient] || s.looksReset(f, sideClient)
	case CauseUpstreamReset:
		return f.broke[sideUpstream] || s.looksReset(f, sideUpstream)
	case CauseCrashed:
		return f.lost || f.crashed || s.scarce || s.keeper.full() && !f.kept || // it did not relay, and there was no room for it
			f.words.told && !f.kept || // it was handed over, and the next process would say that again
			f.half[up].miscounted() || f.half[down].miscounted()
	case CauseNoDescriptors, CauseClientFailed, CauseUpstreamFailed:
		return s.scarce
	case CauseOverload:
		return s.shedNow(int(f.id), quiet)
	case CauseIdle:
		return s.idle > 0 && quiet >= s.idle
	case CauseHalfClosed:
		return s.idle > 0 && quiet >= s.idle/2 && (f.half[up].ended || f.half[down].ended)
	}
	return s.explainsEarly(f, c)
}

// looksReset reports whether the connection of a side has ended well, and looks to the next process as if the one that died in the flow's turn had
// taken the error of a reset: the kernel's counter has an urgent byte in it, or records.
func (s *simulation) looksReset(f *simFlow, side int) bool {
	counts := len(f.half[side].urgent) > 0 || s.kernelTLS && f.secure.at[side]
	return f.inTurn && !f.unix[side] && counts && f.half[up].ended && f.half[down].ended
}

// simHalf is a direction, by the side that sends.
type simHalf struct {
	sent, got int64
	ended     bool // the sender has ended it, and not by a reset
	end       bool // the receiver has got the end
	failed    bool // the receiver has got an error

	// An urgent byte that nobody skips arrives as one of the stream.
	urgent    []int64 // how many bytes had been sent when one was
	late      int     // how many of those at this place have arrived
	overtaken int64   // and at all places
	waits     bool    // one waited between the last two turns, and the process knew
	doubts    int     // processes that have died in a read of it, and could not know of one
	doubtAt   int64   // how many bytes that read had in front of it
}

// simPeriod is how many bytes of a direction differ from each other. It is a prime number, and larger than what is sent at once.
const simPeriod = 300_007

// simText is what all directions send, from different places on. It is there twice, so that a part of it is in one piece.
var simText = sync.OnceValue(func() []byte {
	b := make([]byte, 2*simPeriod)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range simPeriod {
		b[i] = byte(r.Uint32())
	}
	for id := range simFlowsMost + 1 { // the first byte that an upstream gets says whose it is
		b[simPlace(byte(id), up, 0)] = byte(id)
	}
	copy(b[simPeriod:], b)
	return b
})

// simPlace is where byte n of a direction of a flow is in simText.
func simPlace(id byte, side int, n int64) int {
	return int((n + int64(id)*40_009 + int64(side)*20_011) % simPeriod)
}

// simBytes are n bytes of a direction of a flow, from byte at on.
func simBytes(id byte, side int, at int64, n int) []byte {
	return simText()[simPlace(id, side, at):][:n]
}

// simByte is byte n of a direction of a flow.
func simByte(id byte, side int, n int64) byte { return simBytes(id, side, n, 1)[0] }

func (s *simulation) fail(format string, args ...any) {
	if s.wrong == nil {
		s.wrong = fmt.Errorf(format, args...)
	}
}

// newSimulation makes the peers and the first process.
func newSimulation(settings simSettings) *simulation {
	s := newEmptySimulation()
	s.simSettings = settings
	s.seen.init()
	s.world.Slow, s.world.Trace, s.world.KernelTLS = s.slow, s.trace, s.kernelTLS
	s.peers = s.world.NewProcess()
	s.keeper = newSimHolder(s, s)
	s.at = [simNetworks]Addr{{Network: TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:1000")}, {Network: Unix, Path: "@relay"}}
	s.to = [simNetworks]Addr{{Network: TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:2000")}, {Network: Unix, Path: "@upstream"}}
	s.dead = [simNetworks]Addr{{Network: TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:3000")}, {Network: Unix, Path: "@nobody"}}
	for i, a := range s.to {
		fd, err := sys.Listen(s.peers, simAddress(a), false, false, s.backlog, func(int) error { return nil })
		if err != nil {
			panic(err)
		}
		s.upstream[i] = fd
	}
	if s.busy > 0 {
		s.peersDo = s.between(rand.New(rand.NewPCG(uint64(s.busy), 3)))
	}
	s.begin()
	return s
}

func simAddress(a Addr) *sys.Sockaddr {
	sa := new(sys.Sockaddr)
	if err := sockaddr(sa, a); err != nil {
		panic(err)
	}
	return sa
}

// begin starts a process, which restores what the one before has left.
func (s *simulation) begin() {
	for {
		s.process = s.keeper.next()
		s.over = simOverload{died: s.over.died || s.over.shedding != nil}
		s.process.Before = s.peersDo
		s.restoring = true
		if s.lives(s.start) {
			s.restoring = false
			return
		}
	}
}

func (s *simulation) start() {
	keep := &hold.Keep{Holder: s.keeper, Held: s.keeper.give(), After: -1, Linger: s.linger}
	s.finds(keep.Held)
	if s.after > 0 {
		keep.After = simAfter
	}
	s.processes++
	if s.updates > 0 {
		s.socket = (s.updates + s.processes) % simSocketsDrawn
	}
	s.process.Limit, s.scarce = s.files, s.scarce || s.files > 0
	loops := max(1, s.loops)
	if s.changes && s.processes%2 == 0 {
		loops = loops%3 + 1
	}
	s.kernel = newCostKernel(s, s.process, keep.Held)
	if s.early {
		s.process.DieAfter(s.diesNext)
		s.process.Fault, s.diesNext = s.faults, 0
	}
	fails := s.process.Fault != nil || s.keeper.fails > 0 || s.keeper.full()
	c, err := newCore(Config{Loops: loops, Keep: keep, MaxPipes: s.maxPipes(), PipeSize: 64 << 10, LowWaterMark: 20_000, MaxHandshakes: s.handshakes}, s.kernel)
	if err != nil && (s.early && fails || s.keeper.full()) {
		s.faults, s.keeper.fails = nil, 0
		panic(simkernel.Died{Call: startFailed})
	}
	if err != nil {
		s.fail("new engine: %v", err)
		return
	}
	s.core, c.step = c, s.lingers
	s.lookAtGenerations(keep.Held)
	if s.process.Fault = nil; !s.early {
		s.process.DieAfter(s.diesNext)
	}
	s.diesNext = 0
	if c.streams.pipes != nil {
		c.streams.pipes.Keep()
	}
	c.streams.computing.Go = func(handshake func(pause func())) { s.tasks = append(s.tasks, newTask(handshake)) }
	s.stepper = loop.NewStepper(c.loops, func() {
		s.computeToEnd()
		close(c.done)
	})
	e := &Engine{c}
	defer func() { s.process.Fault = s.faults }()
	if s.drain.ever {
		s.keeper.fails = 0 // sockets of listeners are new, and their holder is asked again by the clock
	}
	if err := s.listens(e); err != nil {
		s.fail("listen: %v", err)
		return
	}
	s.refusesConfigs(s.listeners()[0])
	r, err := e.Restore(RestoreConfig{})
	if err != nil {
		s.fail("restore: %v", err)
	}
	s.checkRestored(&r)
	s.lookAtTotals()
	s.keeper.begun()
}

// simDefaultPipes and simNoPipes are settings of the most pipes.
const (
	simDefaultPipes = -1
	simNoPipes      = -2
)

// maxPipes is Config.MaxPipes.
func (s *simSettings) maxPipes() int {
	switch s.pipes {
	case simDefaultPipes:
		return 0
	case simNoPipes:
		return -1
	}
	return cmp.Or(s.pipes, 4)
}

// startFailed is what a process dies of whose engine cannot be made.
const startFailed = simkernel.Call("start")

// lives calls do, and reports false if the process has died in it. What it leaves is what its keeper has, and the shared memory.
func (s *simulation) lives(do func()) (lives bool) {
	defer func() {
		if cause := recover(); cause != nil {
			died, ok := cause.(simkernel.Died)
			if !ok {
				panic(cause)
			}
			s.seen.deaths[died.Call]++
			if s.dying != nil {
				s.dying()
			}
			s.died()
			lives = false
		}
	}()
	do()
	return true
}

// call calls do, and begins the next process if this one dies in it.
func (s *simulation) call(do func()) {
	if !s.lives(do) {
		s.begin()
	}
}

// died is the end of a process.
func (s *simulation) died() {
	s.deaths++
	if !s.restoring {
		for _, f := range s.flows {
			f.kept = false
		}
	}
	if s.core != nil && len(s.core.streams.all) > 0 {
		for _, st := range s.core.streams.all {
			st.slab.Each(func(f *streamFlow) {
				if x := s.flowOf(&f.Flow); x != nil {
					x.kept = f.kept && st.record(f).Generation() == f.gen // or it has ended, and its record is not handed out
					x.ref, x.loop = f.ref(), st.loop.Index
				}
			})
		}
		for i, st := range s.core.streams.all {
			note := st.keep.turn.Note()
			for _, f := range s.flows {
				if !f.kept || f.loop != i || f.ref != (ref{Slot: note.Slot, Gen: note.Generation}) {
					continue
				}
				f.inTurn = true
				f.crashed = f.crashed || st.keep.ledger.Record(note.Slot).Crashes()+1 >= crashesMost
				if h := &f.half[note.Half]; note.Phase == ledger.PhaseReading && !h.waits && !f.unix[note.Half] {
					in, _ := st.keep.turn.Counts()
					h.doubts, h.doubtAt = h.doubts+1, in-h.overtaken
				}
			}
		}
	}
	for _, f := range s.left() {
		f.lost = f.lost || !f.kept
	}
	unheld := s.core != nil && s.core.holding != nil && len(s.core.holding.unheld) > 0
	if s.core != nil {
		s.begun = s.leaves(false)
	} else { // what the one before has left is there, but for what this one has given up
		s.begun.some = s.damaged
	}
	s.drop(false)
	if unheld { // those that wait at a listener's socket end with it
		for _, f := range s.left() {
			f.lost = f.lost || !f.kept
		}
	}
}

// left returns the flows that end with their process if they are not kept: those that it has accepted, and that have no record yet.
func (s *simulation) left() (flows []*simFlow) {
	var unaccepted []int // at the listeners, which are kept
	for _, at := range s.at {
		unaccepted = append(unaccepted, s.world.Unaccepted(simAddress(at))...)
	}
	for _, f := range s.flows {
		if f.records == 0 && !slices.Contains(unaccepted, f.number) {
			flows = append(flows, f)
		}
	}
	return flows
}

// drop ends a process that does not run any more, but for what lingers of it if it has handed over.
func (s *simulation) drop(handedOver bool) {
	s.dropTasks()
	handedOver = handedOver && s.core.lingering != nil
	if s.core != nil {
		s.totals = totalsOf(s.core.stats)
		h := s.core.holding
		free := h.mu.TryLock() // or it has died in there
		if h.again != nil {
			h.again.Stop() // it is a timer of the real clock
		}
		if free {
			h.mu.Unlock()
		}
		forget(s.core)
	}
	s.core = nil
	s.drain.processEnds()
	for _, f := range s.flows {
		f.inQueue = FlowRef{}
	}
	s.exits(handedOver)
	s.keeper.ended()
}

func encodeNumber(f *Flow, e *hold.Encoder) { e.Uint(uint64(f.Value().(int))) }

func decodeNumber(f *Flow, d *hold.Decoder) error {
	f.SetValue(int(d.Uint()))
	return d.Err()
}

func simNetwork(unix bool) int {
	if unix {
		return simUnix
	}
	return simTCP
}

// flowOf returns the simulation's part of a flow.
func (s *simulation) flowOf(f *Flow) *simFlow { return s.flowNumber(f.Value()) }

func (s *simulation) flowNumber(value any) *simFlow {
	for _, f := range s.flows {
		if f.number == value {
			return f
		}
	}
	return nil
}

func (s *simulation) done(r *Record) {
	f := s.flowNumber(r.Value)
	if f == nil && r.Cause == CauseNoDescriptors { // it was not even admitted
		for _, x := range s.left() {
			if !x.admitted && !x.lost && r.Listener.Addr() == s.at[simNetwork(x.unix[sideClient])] {
				f = x
			}
		}
	}
	if f == nil {
		s.fail("the record of a flow of %s, which is no client", r.Peer)
		return
	}
	if f.records++; f.records > 1 {
		s.fail("flow %d has %d records", f.id, f.records)
	}
	if !s.explains(f, r.Cause) {
		s.fail("flow %d ends with %s, %v, which nothing explains:\n%s", f.id, r.Cause, r.Err, s.describe())
	}
	switch r.Cause {
	case CauseOverload, CauseDrained, CauseIdle, CauseHalfClosed, CauseRefused, CauseNoUpstream, CauseConnectTimeout, CauseQueueTimeout, CauseLife, CauseFirstByte, CauseClientGone, CauseClosed,
		CauseCrashed, CauseNoDescriptors, CauseClientFailed, CauseUpstreamFailed, CauseClientTLS, CauseUpstreamTLS:
		f.timedOut = true
	case CauseClientReset, CauseUpstreamReset:
		f.timedOut = f.timedOut || s.looksReset(f, sideClient) || s.looksReset(f, sideUpstream)
	}
	f.record = *r
	s.checkRecord(f, r)
	s.checkTimes(f, r)
	if !errorFits(r.Cause, r.Err) && f.lingerer == nil { // whose process tells the cause, and not the error
		s.fail("flow %d ends with %s, and the error is %v", f.id, r.Cause, r.Err)
	}
	if f.told.process > 0 {
		s.compareTold(int(f.id), &f.told.info.Record, r, f.told.info.State == stats.StateRelaying)
	}
	s.seen.causes[r.Cause]++
	for h, t := range [2]Transfer{up: r.Up, down: r.Down} {
		half := &f.half[h]
		s.recorded.read += t.Read
		s.recorded.written += t.Written
		s.recorded.spliced += t.Spliced
		f.written[h] = t.Written
		switch {
		case r.Cause == CauseEnd && (t.Written < half.sent && (f.builtin != Discard || s.deaths == 0) || t.Written > half.most()):
			s.fail("flow %d has ended well, and says %d bytes of direction %d, of which %d were sent", f.id, t.Written, h, half.sent)
		case t.Spliced > t.Written, t.Spliced < 0, t.Written > t.Read, t.Read > half.most()+f.sniffed(h), t.Written < half.got+half.overtaken-f.uncounted(h) && r.Cause != CauseCrashed && f.builtin != Discard:
			s.fail("flow %d says that %d bytes of direction %d were read and %d written; %d were sent, and %d have arrived", f.id, t.Read, h, t.Written, half.sent, half.got)
		}
	}
}

// connect begins a client. The networks of both sides are drawn from kind, and what comes before it relays from plan.
func (s *simulation) connect(kind, plan int) bool {
	if len(s.flows) >= simFlowsMost {
		return false
	}
	f := &simFlow{id: byte(len(s.flows) + 1), unix: [2]bool{kind&3 == 1, kind>>2&3 == 1}, fd: [2]int{-1, -1}, plan: drawPlan(plan), builtin: drawBuiltin(s.builtins, plan), pace: drawPace(s.rates, plan), began: s.world.Elapsed(), movedAt: s.world.Elapsed()}
	if f.builtin != 0 {
		f.pace.hook %= 2 // for lack of Hooks.Connected
	} else {
		f.words = drawWords(s.words, plan)
	}
	s.secureFlow(f, plan)
	sa := simAddress(s.at[simNetwork(f.unix[sideClient])])
	fd, e := s.peers.Socket(sa.Family(), false)
	if e != 0 {
		s.fail("socket: %v", e)
		return false
	}
	s.world.SlowConnects, s.peers.Choose = false, func(n int) int { return kind >> 4 % n }
	e = s.peers.Connect(fd, sa)
	s.world.SlowConnects = s.slowConnects
	if e == sys.EINPROGRESS {
		e = sys.SockError(s.peers, fd)
	}
	if e != 0 {
		if !s.drain.begun {
			s.fail("a client cannot connect: %v", e)
		}
		s.peers.Close(fd)
		return false
	}
	f.fd[sideClient] = fd
	f.number, _ = s.peers.Number(fd)
	s.flows = append(s.flows, f)
	if f.secure.at[sideClient] {
		s.newPeer(f, sideClient)
	}
	s.send(f, up, 1) // so that its upstream knows whose it is
	return true
}

// accept lets the upstreams accept, and find out whose connections they have.
func (s *simulation) accept() (some bool) {
	for _, l := range s.upstream {
		for {
			var sa sys.Sockaddr
			fd, e := s.peers.Accept(l, &sa)
			if e != 0 {
				break
			}
			s.accepted = append(s.accepted, fd)
			some = true
		}
	}
	left := s.accepted[:0]
	for _, fd := range s.accepted {
		var b [1]byte
		switch n, e := s.peers.Recv(fd, b[:]); {
		case e == sys.EAGAIN:
			left = append(left, fd)
		case n == 0 || e != 0: // its client has gone, or its process, which may connect again after an upgrade
			if s.upgrades == 0 && !s.limits && !s.scarce && s.words == 0 && s.handshakes == 0 && !s.drain.ever && !slices.ContainsFunc(s.flows, (*simFlow).mayReset) {
				s.fail("an upstream got no byte: %v", e)
			}
			s.peers.Close(fd)
		default:
			s.met(fd, b[0])
		}
	}
	s.accepted = left
	return some
}

// met is called with the first byte that an upstream has got, which says whose it is.
func (s *simulation) met(fd int, first byte) {
	if s.metTLS(fd, first) {
		return
	}
	for _, f := range s.flows {
		if simByte(f.id, up, 0) != first {
			continue
		}
		if f.fd[sideUpstream] >= 0 && f.answers() {
			s.leave(f)
		}
		if f.fd[sideUpstream] >= 0 || f.half[up].got > 0 {
			s.fail("flow %d has a second connection to its upstream", f.id)
		}
		f.fd[sideUpstream] = fd
		s.meets(f)
		return
	}
	s.fail("an upstream got %#x first, which is nobody's", first)
}

// send lets a peer send up to n bytes.
func (s *simulation) send(f *simFlow, side, n int) bool {
	h := &f.half[side]
	if p := f.peerOf(side); p != nil {
		return s.sendTLS(p, n)
	}
	switch {
	case f.fd[side] < 0 || h.ended:
		return false
	case side == sideUpstream && f.answers():
		return s.say(f, n)
	}
	m, e := s.peers.Send(f.fd[side], simBytes(f.id, side, h.sent, min(n, simPeriod)))
	switch {
	case e == 0:
		h.sent += int64(m)
		f.follow()
	case e != sys.EAGAIN:
		s.broken(f, side, e)
	}
	return e == 0
}

// read lets a peer read up to n bytes.
func (s *simulation) read(f *simFlow, side, n int) bool {
	h := &f.half[1-side]
	defer f.follow()
	if p := f.peerOf(side); p != nil {
		return s.readTLS(p, n)
	}
	if f.fd[side] < 0 || h.end {
		return false
	}
	b := s.scratch[:min(n, simPeriod)]
	m, e := s.peers.Recv(f.fd[side], b)
	switch {
	case e == sys.EAGAIN:
		return false
	case side == sideUpstream && f.answers() && (e != 0 || m == 0):
		s.leave(f)
		return true
	case e != 0:
		s.broken(f, side, e)
		return true
	case m == 0:
		h.end = true
		if h.ended && h.got == h.sent || f.leaves(1-side) {
			return true
		}
		wrong := fmt.Sprintf("side %d has got the end after %d of %d bytes, and it was sent: %v", side, h.got, h.sent, h.ended)
		if !f.unix[side] && !(side == sideClient && f.words.told) {
			s.fail("flow %d: %s", f.id, wrong)
			return true
		}
		h.failed = true // a Unix socket cannot be reset, and a client that was told why is not
		f.unexplained = wrong
		return true
	}
	from := h.got
	if rest, ok := f.words.takesFront(1-side, b[:m]); !ok || !h.takes(f.id, f.sender(side), rest) {
		s.fail("flow %d: %d bytes that side %d has got, from byte %d on, are not those that were sent", f.id, m, side, from)
	}
	s.ask(f)
	s.delivered += int64(m)
	return true
}

// broken is called when a peer's connection has failed.
func (s *simulation) broken(f *simFlow, side int, e sys.Errno) {
	f.unexplained = fmt.Sprintf("side %d: %v", side, e)
	f.half[1-side].failed = true
	f.follow()
	s.peers.Close(f.fd[side])
	f.fd[side] = -1
}

// end lets a peer end its direction.
func (s *simulation) end(f *simFlow, side int) bool {
	if p := f.peerOf(side); p != nil {
		return s.endTLS(p)
	}
	if f.fd[side] < 0 || f.half[side].ended || side == sideUpstream && f.answers() {
		return false
	}
	f.half[side].ended = true
	f.follow()
	s.peers.ShutdownWrite(f.fd[side])
	return true
}

// close lets a peer close its connection, with a reset or with what close(2) makes of it.
func (s *simulation) close(f *simFlow, side int, reset bool) bool {
	if f.fd[side] < 0 || side == sideUpstream && f.answers() {
		return false
	}
	p := f.peerOf(side)
	if reset || !f.half[side].ended || !f.half[1-side].end || p != nil && len(p.out) > 0 {
		f.broke[side] = true
	}
	if n, _ := s.peers.ReadQueued(f.fd[side]); p == nil && n == 0 && (!reset || f.unix[side]) { // close(2) with bytes that nobody has read is a reset, too
		f.half[side].ended = true
		f.follow()
	}
	if p != nil {
		s.closesTLS(p)
	}
	s.peers.CloseResets(f.fd[side], reset)
	s.peers.Close(f.fd[side])
	f.fd[side] = -1
	return true
}

// turn is one turn of each loop.
func (s *simulation) turn() {
	for i := range s.core.loops {
		s.turnLoop(i)
	}
}

// turnLoop is one turn of a loop.
func (s *simulation) turnLoop(i int) {
	i %= len(s.core.loops)
	if !s.lives(func() { s.stepper.Turn(s.core.loops[i]) }) {
		s.begin()
	} else if note := s.core.streams.all[i].keep.turn.Note(); note.Generation != 0 {
		s.fail("between two turns, the note of loop %d names slot %d", i, note.Slot)
	}
	s.turnLingerers()
	s.look()
}
