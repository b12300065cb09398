package relay

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// gramSimulation is one run of an engine with a datagram listener in a simulated kernel: clients, two upstreams, a holder, and processes
// that die in the middle of a call and are followed by the next one. Nothing happens but what it does.
//
// Each datagram says whose it is, in which direction it goes and which one it is. So one that arrives was sent, to whoever gets it, has
// not arrived before, and is whole; and of one that does not arrive it is known who has lost it.
type gramSimulation struct {
	*simulation      // the world, the processes, the holder, and what was wrong
	kind             gramWorld
	listener         *Listener
	listen           Addr
	to               [2]Addr
	upstreams        [2]*gramEnd // nil: nobody is there
	clients          []*gramEnd
	flows            []*gramLife // by number
	sent             map[gramID]*gramSent
	unresolved       []*gramSent // those of which nobody knows yet whether they arrive
	order            map[gramVia]uint32
	heard            []gramHeard // what upstreams can answer
	counted          int64       // datagrams dropped by the engine's count when the last process had died
	recount          bool        // one has
	discardedEarlier int64       // by flows that have ended, less what those that go on had when this process began
	refused          bool        // an upstream has been away
	faulted          bool        // calls have failed
	faultedAt        int64       // when they did last, by ticks
	failsWith        sys.Errno   // what sends fail with, as long as calls do; 0: they do not
	handing          bool        // HandOver runs
	unknown          int         // flows that were lost, without a record, since their loop has no socket of the listener and got none
	strayedAt        int64       // when loops asked others about a datagram last, which the one behind it may overtake
	regroupedAt      int64       // when it changed last by which socket a client is heard
	relistens        int
	in               *sys.Vector
	out              *sys.Vector
	restoredAll      int64
	lent             []*gramLent
	seen             gramSeen
	groups           gramGroups
	paces            gramPaces
	received         int64
	kernel           *gramKernel
	calls            gramCalls
	closings         []*gramClosing
	successor        gramSuccessor
	removed          [2]int64 // upstreams: when; 0: it is there
	removedEver      bool
	clientLeft       bool
	ticks            int64         // steps and turns
	looks            int64         // for datagrams
	lookedAt         time.Duration // when the last look was
	drops            gramDrops
	begins           gramBegins
	routes           gramRoutes
	onlyUnreachable  bool // nothing was dropped since the last look but what had no route, or met an ICMP message
}

// gramWorld is what differs between worlds.
type gramWorld struct {
	network   int  // 0: IPv4, 1: any IPv4 address, 2: IPv6, 3: Unix
	noIPv6    bool // there are no sockets of IPv6
	loops     int  // 0: one
	changes   bool // the next process has another number of them
	slow      bool
	phase     time.Duration // of the clock
	joins     bool
	bufferMax int
	after     int
	config    DatagramConfig
	maxFlows  int
	limit     int // of descriptors
	noGSO     bool
	noGRO     bool
	early     bool // a process may die, and calls fail, from its first call on
	newFlows  int  // Config.MaxNewDatagramFlows
	close     bool // at the end, the engine is closed
	busy      int  // peers do something between two calls of the relay, drawn with this; 0: they do not
	rates     int  // flows have bandwidths, drawn with this; 0: they do not
	preface   int  // see gramPrefaceNone
	named     int  // see gramNamedNone
	several   bool // clients share addresses, and Hooks.Choose tells their flows apart
	builtins  int  // the upstreams of clients are built in, drawn with this; 0: they are not
	sniff     int  // clients are sniffed, by a plan that is drawn with this; 0: they are not
	real      int  // see simSettings
	dscp      int  // of the sockets of the listener, and 64 times that of those towards upstreams
	routes    int  // routes go and come, and the hook does what this draws; 0: they do not
}

const (
	gramHead     = 12
	gramIdle     = 4 * time.Second
	gramPeersMax = 6
)

// gramID says which datagram it is.
type gramID struct {
	client byte
	dir    byte
	n      uint32
}

// gramSent is a datagram that a peer has sent.
type gramSent struct {
	gramID
	size    int
	tos     uint8
	via     string // of a reply: where it was sent to
	got     bool
	lost    bool   // by the world
	crashed bool   // it was not there when a process had died
	at      int64  // when it was sent, by gramSimulation.ticks
	seen    int64  // when it was in flight or in a queue last, by gramSimulation.looks
	from    string // of a client: its name then
	chosen  bool   // Hooks.Choose has said which flow's it is
}

// gramVia is a way on which order is promised.
type gramVia struct {
	client, dir byte
	via         string
}

// gramHeard is where an answer for a client can be sent.
type gramHeard struct {
	client   byte
	upstream int
	name     string
}

// gramGroups tells which clients may have two flows at a listener: those of whom datagrams were in the queue of one of its sockets, or
// went from loop to loop, when the number of these sockets has changed; and see lookAtListeners.
type gramGroups struct {
	queued, exempt [256]bool // by client
	clients        map[string]byte
	ports, now     []gramPortNow
	flows          map[gramClientAt]bool // that a look has found
	at             [256]*Listener        // where a look has found a flow of a client
}

// gramPortNow is what a change of a listener's sockets shows in; the keeper closes them when it likes.
type gramPortNow struct{ fd, state, owned int }

// gramEnd is a client or an upstream.
type gramEnd struct {
	fd   int
	name string // as Addr has it
	next [2]uint32
}

// gramLife is a flow.
type gramLife struct {
	number   int
	client   string
	records  int
	kept     bool
	lost     bool // its process has died, and it was not kept
	began    time.Duration
	moved    int64
	activeAt time.Duration
	notedAt  time.Duration // what the next process knows of that
	sniff    gramSniff
	record   Record
	several  gramSeveral
	loop     int
	in       int64 // bytes of the client when it was looked at last, and whether it had been sent something
	replied  bool
	killed   bool  // by an operator
	inTurns  int   // processes that have died in its turn
	ownAt    int64 // since when it has a socket of its own; 0: it has none
	pace     gramPace
	told     simTold
	route    gramRoute
}

func newGramSimulation(kind gramWorld) *gramSimulation {
	s := &gramSimulation{
		simulation: newEmptySimulation(),
		kind:       kind,
		groups:     gramGroups{clients: make(map[string]byte), flows: make(map[gramClientAt]bool)},
		sent:       make(map[gramID]*gramSent), order: make(map[gramVia]uint32),
		in: sys.NewVector(1, 1, sys.Unix), out: sys.NewVector(1, 1, sys.Unix),
	}
	s.seen.init(&s.simulation.seen)
	s.simSettings = simSettings{real: kind.real, changes: kind.changes}
	w := s.world
	w.Sleep(kind.phase)
	w.Slow, w.Joins, w.GramBufferMost, w.Lost = kind.slow, kind.joins, kind.bufferMax, s.worldLost
	if kind.bufferMax > 0 {
		w.GramSendBuffer, w.GramReceiveBuffer = 2*kind.bufferMax, 2*kind.bufferMax
	}
	s.in.SetBuf(0, s.scratch[:1<<16])
	s.peers = w.NewProcess()
	s.keeper = newSimHolder(s.simulation, s)
	at := [...][3]string{
		{"127.0.0.1:1000", "127.0.0.1:2000", "127.0.0.1:2001"},
		{"0.0.0.0:1000", "127.0.0.1:2000", "127.0.0.1:2001"},
		{"[::1]:1000", "[::1]:2000", "[::1]:2001"},
		{"@relay", "@one", "@two"},
	}[kind.network]
	addr := func(text string) Addr {
		if kind.network == 3 {
			return Addr{Network: Unixgram, Path: text}
		}
		return Addr{Network: UDP, AddrPort: netip.MustParseAddrPort(text)}
	}
	s.listen, s.to = addr(at[0]), [2]Addr{addr(at[1]), addr(at[2])}
	s.routesStart()
	for i := range s.upstreams {
		s.upstreamComes(i)
	}
	if kind.busy > 0 {
		s.peersDo = s.between(rand.New(rand.NewPCG(uint64(kind.busy), 4)))
	}
	s.begin()
	return s
}

func (s *gramSimulation) family() sys.Family {
	switch s.kind.network {
	case 2:
		return sys.IPv6
	case 3:
		return sys.Unix
	}
	return sys.IPv4
}

// peer makes the socket of a client or an upstream. It is bound to at, or to any address of its own.
func (s *gramSimulation) peer(at *Addr) *gramEnd {
	fd, e := s.peers.Datagram(s.family())
	var sa sys.Sockaddr
	switch {
	case at != nil:
		sockaddr(&sa, *at)
	case s.kind.network == 3:
		sa.SetUnnamed()
	case s.kind.network == 2:
		sa.SetAddrPort(netip.AddrPortFrom(netip.IPv6Loopback(), 0))
	default:
		sa.SetAddrPort(netip.MustParseAddrPort("127.0.0.1:0"))
	}
	e = max(e, s.peers.Bind(fd, &sa))
	if s.family() != sys.Unix {
		sys.SetRecvTOS(s.peers, fd, s.family(), true)
	}
	if e != 0 {
		s.fail("a peer: %v", e)
	}
	s.peers.LocalAddr(fd, &sa)
	name := sa.UnixPath()
	if s.kind.network != 3 {
		name = sa.AddrPort().String()
	}
	return &gramEnd{fd: fd, name: name}
}

func (s *gramSimulation) upstreamComes(i int) bool {
	if s.upstreams[i] != nil {
		return false
	}
	s.upstreams[i] = s.peer(&s.to[i])
	return true
}

func (s *gramSimulation) upstreamGoes(i int) bool {
	if s.upstreams[i] == nil {
		return false
	}
	s.peers.Close(s.upstreams[i].fd)
	s.upstreams[i], s.refused = nil, true
	return true
}

func (s *gramSimulation) connect() bool {
	if len(s.clients) >= gramPeersMax {
		return false
	}
	i := len(s.clients)
	s.clients = append(s.clients, s.shares(i))
	s.groups.clients[s.nameOf(i, s.clients[i])] = byte(i)
	return true
}

// clientGoes closes a client's socket; the client begins again with another.
func (s *gramSimulation) clientGoes(i int) {
	c := s.clients[i]
	s.clientLeft = true
	s.peers.Close(c.fd)
	next := s.peer(nil)
	for j, o := range s.clients {
		if j != i && s.kind.shares() && o.fd == c.fd {
			o.fd, o.name = next.fd, next.name
		}
	}
	c.fd, c.name = next.fd, next.name
	s.groups.clients[s.nameOf(i, c)] = byte(i)
}

// begin starts a process, which restores what the one before has left.
func (s *gramSimulation) begin() {
	for {
		s.process = s.keeper.next()
		s.process.Before = s.peersDo
		s.over = simOverload{died: s.over.died || s.over.shedding != nil}
		s.restoring = true
		if s.lives(s.start) {
			s.restoring = false
			if s.core != nil && s.recount {
				s.counted, s.recount = s.dropped(), false
				s.discardedEarlier -= s.discardedGrams()
			}
			return
		}
	}
}

// dropped is how many datagrams the engine has dropped by its own count.
func (s *gramSimulation) dropped() (n int64) {
	for _, d := range s.core.datagrams.all {
		for _, m := range d.stats.Dropped {
			n += m
		}
	}
	return n
}

func (s *gramSimulation) start() {
	keep := &hold.Keep{Holder: s.keeper, Held: s.keeper.give(), After: -1}
	if s.kind.after > 0 {
		keep.After = simAfter
	}
	s.otherVersion(keep.Held)
	s.process.Limit = s.kind.limit
	s.processes++
	loops := max(1, s.kind.loops)
	if s.kind.changes && s.processes%2 == 0 {
		loops = loops%3 + 1
	}
	s.kernel = &gramKernel{Process: s.process, s: s, watched: make(map[int]gramWatch)}
	if s.kind.early {
		s.process.DieAfter(s.diesNext)
		s.process.Fault, s.diesNext = s.faults, 0
	}
	fails := s.process.Fault != nil || s.keeper.fails > 0 || s.kind.limit > 0
	c, err := newCore(Config{Loops: loops, Keep: keep, MaxDatagramFlows: s.kind.maxFlows, MaxNewDatagramFlows: s.kind.newFlows, NoGSO: s.kind.noGSO, NoGRO: s.kind.noGRO}, s.kernel)
	if err != nil && (s.kind.early && fails || s.keeper.full()) {
		s.faults, s.keeper.fails = nil, 0
		panic(simkernel.Died{Call: startFailed})
	}
	if err != nil {
		s.fail("new engine: %v", err)
		return
	}
	s.core, s.listener = c, nil
	s.lookAtGenerations(keep.Held)
	s.takeBack()
	for _, d := range c.datagrams.all {
		s.lend(d)
	}
	if s.process.Fault = nil; !s.kind.early {
		s.process.DieAfter(s.diesNext)
	}
	s.diesNext = 0
	c.streams.pipes.Keep()
	s.stepper = loop.NewStepper(c.loops, func() { close(c.done) })
	err = s.listens()
	if errors.Is(err, sys.EADDRINUSE) { // a process has died that closed the listener, and the holder has it for a moment
		s.keeper.closeDropped()
		err = s.listens()
	}
	if err != nil {
		s.fail("listen: %v", err)
		return
	}
	s.refusesConfigs(s.listener)
	r, err := (&Engine{c}).Restore(RestoreConfig{})
	for loss, n := range r.Lost.All() {
		if loss == hold.LossListener && (s.relistens > 0 || s.drain.ever) && (s.faulted || s.kind.limit > 0 || s.drain.ended) { // a process that died as its drain ended had let go of that loop's socket, and was about to end the flows
			s.unknown += int(n)
		}
	}
	if err != nil {
		s.fail("restore: %v", err)
	}
	s.lookAtTogether()
	s.lookAtTotals()
	s.keeper.begun()
}

func (s *gramSimulation) listens() (err error) {
	s.keeper.fails = 0 // the holder of a listener is asked again by the clock
	anew := true
	for key := range s.keeper.held {
		anew = anew && kindOf(key) != holdListener
	}
	config := s.kind.config
	config.Origin = s.kind.origin()
	s.listener, err = (&Engine{s.core}).Listen(s.listen, ListenConfig{
		Hooks:    Hooks{Admit: s.admit, Sniff: s.sniffGram, Choose: s.chooser(), Upstream: s.choose, Connected: s.connected, Done: s.done, Encode: encodeNumber, Decode: decodeNumber},
		Timeouts: Timeouts{Idle: gramIdle},
		Datagram: config,
		Socket:   SocketOptions{DSCP: s.kind.dscpOf(down)},
		Dial:     &DialConfig{PrefaceEach: s.kind.preface == gramPrefaceEach, Socket: SocketOptions{DSCP: s.kind.dscpOf(up)}},
	})
	if anew && err == nil && s.family() != sys.Unix && len(s.listener.sockets()) != len(s.core.loops) {
		s.fail("a listener has %d sockets, and there are %d loops", len(s.listener.sockets()), len(s.core.loops))
	}
	return err
}

// dscpOf returns the DSCP of sockets that send in a direction.
func (x *gramWorld) dscpOf(dir byte) uint8 {
	if dir == up {
		return uint8(x.dscp >> 6 & 63)
	}
	return uint8(x.dscp & 63)
}

// closeListener closes the listener. Its flows go on, if they can.
func (s *gramSimulation) closeListener() bool {
	l := s.listener
	if l == nil || s.drain.begun {
		return false
	}
	x := &gramClosing{processes: s.processes}
	s.closings = append(s.closings, x)
	s.listener = nil
	s.relistens++
	s.call(func() {
		delete(s.core.listeners, l)
		l.stop(stopClosed, &x.wg)
	})
	return true
}

// call is lives, and has the next process begin if this one has died.
func (s *gramSimulation) call(do func()) {
	if !s.lives(do) {
		s.begin()
	}
}

// lives calls do, and reports false if the process has died in it.
func (s *gramSimulation) lives(do func()) (lives bool) {
	defer func() {
		if cause := recover(); cause != nil {
			died, ok := cause.(simkernel.Died)
			if !ok {
				panic(cause)
			}
			s.seen.deaths[died.Call]++
			s.died()
			lives = false
		}
	}()
	do()
	return true
}

// died is the end of a process.
func (s *gramSimulation) died() {
	s.deaths++
	s.recount = true
	if !s.restoring {
		for _, f := range s.flows {
			f.kept = false
		}
	}
	if s.core != nil {
		for _, d := range s.core.datagrams.all {
			note := d.keep.turn.Note()
			d.slab.Each(func(f *datagramFlow) {
				if x := s.lifeOf(f.Value()); x != nil {
					if note.Slot == f.slot && note.Generation == f.gen {
						x.inTurns++
					}
					x.kept = f.kept && d.record(f).Generation() == f.gen
					if f.noting {
						x.activeAt = x.notedAt
					}
				}
			})
		}
	}
	for _, f := range s.flows {
		f.lost = f.lost || f.records == 0 && !f.kept
	}
	s.drop(false)
	s.lookForGrams()
	for _, x := range s.unresolved {
		x.crashed = x.crashed || !x.got && !x.lost && !s.present(x)
	}
}

// lookForGrams finds the datagrams that are in flight or in a queue: see present.
func (s *gramSimulation) lookForGrams() {
	s.looks++
	s.groups.queued = [256]bool{}
	s.world.Datagrams(func(b []byte, queued bool) {
		if len(b) < gramHead {
			return
		}
		id := idOf(b)
		if x := s.sent[id]; x != nil {
			x.seen = s.looks
		}
		if queued && id.dir == up {
			s.groups.queued[id.client] = true
		}
	})
}

// present reports whether the last look has found a datagram.
func (s *gramSimulation) present(x *gramSent) bool { return x.seen == s.looks }

func (s *gramSimulation) lifeOf(value any) *gramLife {
	if n, ok := value.(int); ok && n < len(s.flows) {
		return s.flows[n]
	}
	return nil
}

func (s *gramSimulation) admit(f *Flow) Cause {
	f.SetValue(len(s.flows))
	s.lookAtBeginning(f)
	peer := f.Client()
	name := peer.Path
	if peer.Network == UDP {
		name = peer.AddrPort.String()
	}
	x := &gramLife{number: len(s.flows), client: name, began: s.world.Elapsed(), activeAt: s.world.Elapsed(), notedAt: s.world.Elapsed()}
	s.flows = append(s.flows, x)
	s.startSniff(f, x)
	s.limitGrams(f, x)
	if x.number%3 == 0 {
		t := f.Timeouts()
		t.Life = simForever + time.Duration(x.number)*time.Millisecond
		f.SetTimeouts(t)
	}
	return CauseNone
}

func (s *gramSimulation) choose(f *Flow, attempt int) *Addr {
	s.lookAtChoice(s.flows[f.Value().(int)])
	x := s.flows[f.Value().(int)]
	s.lookAtAsking(f, x)
	if attempt > 3 && s.kind.routes%gramRouteModes == gramRouteByAttempt {
		x.route.nobody = s.ticks
		return nil
	}
	s.prefaceGrams(f)
	if b := s.builtinOf(s.clientIs(s.flows[f.Value().(int)])); b != 0 {
		return &Addr{Network: b}
	}
	i := s.chooses(f, x, attempt)
	if s.removed[i] > 0 {
		i = 1 - i
	}
	if s.removed[i] > 0 {
		x.route.nobody = s.ticks
		return nil
	}
	return &s.to[i]
}

func (s *gramSimulation) done(r *Record) {
	f := s.lifeOf(r.Value)
	if f == nil {
		s.fail("a record of no flow: %v", r)
		return
	}
	if f.records++; f.records > 1 {
		s.fail("flow %d has %d records", f.number, f.records)
	}
	f.record = *r
	if !errorFits(r.Cause, r.Err) {
		s.fail("flow %d ends with %s, and the error is %v", f.number, r.Cause, r.Err)
	}
	if f.told.process > 0 {
		s.compareTold(f.number, &f.told.info.Record, r, true)
	}
	if r.Upstream.Network == Discard {
		s.discardedEarlier += r.Up.Datagrams
	}
	if r.Cause == CauseEvicted {
		s.lookAtEviction(f, r)
	}
	s.checkPath(f, r)
	s.checkHeard(f, r)
	s.seen.causes[r.Cause]++
	s.offer(f, s.world.Elapsed()-f.pace.at, [2]int64{r.Up.Read, r.Down.Read})
	if !s.explainsGram(f, r.Cause) {
		s.fail("flow %d ends with %s, %v, which nothing explains\n%s", f.number, r.Cause, r.Err, s.describeGrams())
	}
}

// roughly returns how far off a process may be about when a flow was active last: of the time before it, each one knows no more than its record.
func (s *gramSimulation) roughly() time.Duration {
	return time.Duration(s.deaths+s.upgrades) << activeBits
}

// explainsGram reports whether what happened explains the cause in a flow's record.
func (s *gramSimulation) explainsGram(f *gramLife, c Cause) bool {
	quiet := s.world.Elapsed() - f.activeAt
	switch c {
	case CauseIdle:
		return quiet+s.roughly() >= gramIdle
	case CauseRefused:
		return f.sniff.turnsAway()
	case CauseAnswered:
		return s.kind.config.Replies > 0
	case CauseUpstreamRefused:
		return s.explainsRefusal(f)
	case CauseNoUpstream:
		return s.routesMiss() || !s.oneReachable() || s.process.Fault != nil || s.kind.limit > 0
	case CauseOverload:
		return s.shedNow(f.number, quiet+s.roughly())
	case CauseDrained:
		return s.drain.ended
	case CauseKilled:
		return f.killed
	case CauseEvicted:
		return s.kind.maxFlows > 0 || s.kind.limit > 0 || s.process.Fault != nil
	case CauseCrashed: // HandOver ends flows that have no upstream
		return s.handing && (f.sniff.begun && !f.sniff.chosen || s.keeper.full() || s.process.Fault != nil) || s.restoring && s.mayCrash(f)
	case CauseClosed:
		return s.closing || s.relistens > 0 && f.ownAt == 0 && (s.kind.network == 3 || s.faulted || s.kind.limit > 0) // flows of UDP get sockets of their own
	case CauseNoDescriptors, CauseNoPorts, CauseUpstreamFailed:
		return s.process.Fault != nil || s.kind.limit > 0
	}
	return false
}

// mayCrash reports whether the next process may not be able to go on with a flow.
func (s *gramSimulation) mayCrash(f *gramLife) bool {
	return f.lost || f.inTurns >= crashesMost || s.keeper.full() || // or its socket is not held
		s.kind.routes > 0 || // its process has died while it asked by its own socket
		s.relistens > 0 || s.drain.ever || s.successor.ever || s.groups.exempt[s.clientIs(f)] // its listener is gone, or its client has a newer flow
}

// oneReachable reports whether a flow can be connected to one of the upstreams, as far as the schedule knows.
func (s *gramSimulation) oneReachable() bool {
	for i, at := range s.removed {
		if at == 0 && (s.kind.network != 3 || s.upstreams[i] != nil) {
			return true
		}
	}
	return false
}

// worldLost is called for each datagram that the world loses.
func (s *gramSimulation) worldLost(b []byte) {
	if len(b) < gramHead {
		return
	}
	if x := s.sent[idOf(b)]; x != nil {
		if x.got {
			s.fail("datagram %v has arrived, and is lost once more", x.gramID)
		}
		x.lost = true
	}
}

// turn is one turn of each loop.
func (s *gramSimulation) turn() {
	for i := range s.core.loops {
		s.turnLoop(i)
	}
}

// turnLoop is one turn of a loop. Who has no listener tries to listen again.
func (s *gramSimulation) turnLoop(i int) {
	s.tick()
	s.call(func() {
		i %= len(s.core.loops)
		s.stepper.Turn(s.core.loops[i])
		if n := len(s.core.datagrams.all[i].noting); n > 0 {
			s.fail("%d flows are not noted at the end of a turn", n)
		}
		if s.core.datagrams.strays.Load() > 0 {
			s.strayedAt = s.ticks
		}
	})
	if s.listener == nil && s.wrong == nil && !s.drain.begun {
		s.call(func() {
			if err := s.listens(); err != nil && !errors.Is(err, sys.EADDRINUSE) && !errors.Is(err, sys.EMFILE) {
				s.fail("listen again: %v", err)
			}
		})
	}
	s.lookAtGrams()
	s.mark()
}

func (s *gramSimulation) kill() {
	s.died()
	s.begin()
}

// handOver implements simRelay.
func (s *gramSimulation) handOver(said func(err error)) bool {
	s.handing = true
	lives := s.lives(func() { said((&Engine{s.core}).HandOver(simContext)) })
	s.handing = false
	if lives {
		if s.core.state != closed {
			return false // the holder has failed
		}
		s.upgrades++
		for _, f := range s.flows {
			f.kept = f.records == 0
		}
		s.lookAtGrams()
		s.drop(true)
	}
	s.begin()
	return lives
}

// refuses implements simRelay: a flow that was kept, and is not held, ends as crashed, as any may when a process has died.
func (s *gramSimulation) refuses(holdKey) {}

// notSent counts the datagrams that flows hold for upstreams, and those that wait for the listener's socket.
func (s *gramSimulation) notSent() (n int64) {
	for _, d := range s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			for rest := f.held; len(rest) > 0; {
				var b []byte
				var seg int
				b, seg, _, rest = cutHeld(rest)
				n += int64(segment.Count(len(b), seg))
			}
		})
		for _, p := range d.ports {
			for i := p.out.at; i < p.out.n; i++ {
				if it := &p.out.items[i]; it.f != nil {
					n += int64(it.count)
				}
			}
		}
	}
	return n
}
