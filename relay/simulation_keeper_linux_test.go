//go:build penstock_invariants

package relay

import (
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay/hold"
)

// simKeeper is the real keeper in a simulation: its machine and its table, and of each worker the outbox and what it makes of messages. Between
// them are pairs of simulated sockets. What both do beside the calls of the engine, and when, is drawn.
//
// The holder's map is the model: what the engine has given to be held. The keeper must hold exactly that, as the same files, whenever it has
// read everything.
type simKeeper struct {
	h       *simHolder
	s       *simulation
	of      simRelay
	r       *rand.Rand
	k       *keeper.Simulated
	workers map[int]*simWorker // that were not reaped
	ordered []*simWorker       // the same in the order in which they were started; one that is reaped leaves a new slice
	runs    *simWorker         // whose process is that of the simulation
	lastID  int
	late    []int              // descriptors that it will close
	buf     *[2][64 << 10]byte // for messages that the keeper reads, and for those that a worker does

	files   map[holdKey][]any   // of what is in the model
	before  map[holdKey][][]any // of what was dropped, and the keeper may not know yet; a key may have been held again since
	unheld  map[holdKey]bool    // that the keeper has refused
	budget  bool                // it can be full
	toEnd   bool                // the worker was asked to hand over
	asks    chan struct{}
	over    bool
	settles bool
	doneAt  time.Duration // when it had read and closed everything last, by idle
}

// simWorker is a process that the keeper has started.
type simWorker struct {
	k       *simKeeper
	id      int
	process *simkernel.Process
	own, fd int                     // the keeper's end of the connection, and the process's
	w       *keeper.SimulatedWorker // nil: it has not begun
	early   []keeper.Item
	said    bool // that it is prepared
	killed  bool // by the keeper
	dead    bool
	hungUp  bool // the keeper knows that it has closed its end
}

const simKeepers = true

var simMessages = sync.Pool{New: func() any { return new([2][64 << 10]byte) }}

func newSimKeeper(h *simHolder, of simRelay) *simKeeper {
	n := h.s.real
	k := &simKeeper{h: h, s: h.s, of: of, r: rand.New(rand.NewPCG(uint64(n), 4)), workers: make(map[int]*simWorker), buf: simMessages.Get().(*[2][64 << 10]byte),
		files: make(map[holdKey][]any), unheld: make(map[holdKey]bool), before: make(map[holdKey][][]any), asks: make(chan struct{}, 1)}
	w := h.s.world
	w.PairBuffer = [...]int{212992, 212992, 40_000, 33_000}[n%4] // longer than any message
	w.FlyingMost = [...]int{0, 0, 0, 3}[n>>2%4]
	cfg := keeper.Config{Standby: []string{ledgerLabel}, Watchdog: -1, Backoff: time.Millisecond, MaxBackoff: 8 * time.Millisecond, KeepSelf: n>>4%2 == 0, Log: k.log}
	limit := 1 << 16
	if k.budget = n>>5%4 == 0 && !h.s.changes; k.budget {
		if n>>7%2 == 0 {
			cfg.MaxItems = 9 + n>>8%8
		} else {
			limit = 9 + n>>8%16
		}
	}
	var err error
	if k.k, err = keeper.Simulate(cfg, limit, k); err != nil {
		h.s.fail("the keeper cannot begin: %v", err)
	}
	return k
}

// keeperDropped is an item that was dropped while the next worker, which had it already, was on standby.
const keeperDropped = "keeper: dropped for a worker on standby"

const ledgerLabel = "ledger"

// log looks at what the keeper logs.
func (k *simKeeper) log(e keeper.Event) {
	k.s.seen.costs["keeper: "+e.Kind.String()]++
	switch e.Kind {
	case keeper.WorkerLied:
		k.s.fail("the keeper says that a worker lied: %s", e.Text)
	case keeper.UpgradeStep:
		k.s.seen.costs["upgrade: "+e.Upgrade.State.String()]++
	}
}

// Now implements keeper.SimulatedWorld.
func (k *simKeeper) Now() time.Time { return k.s.world.Now() }

// Start implements keeper.SimulatedWorld.
func (k *simKeeper) Start() (id, pid int, err error) {
	k.lastID++
	w := &simWorker{k: k, id: k.lastID, process: k.s.world.NewProcess()}
	var e sys.Errno
	if w.own, w.fd, e = k.h.process.NewPair(w.process); e != 0 {
		return 0, 0, e
	}
	k.workers[w.id] = w
	k.ordered = append(k.ordered, w)
	return w.id, 1000 + w.id, nil
}

// Send implements keeper.SimulatedWorld.
func (k *simKeeper) Send(id int, b []byte, fds []int) sys.Errno {
	w := k.workers[id]
	if w == nil {
		return sys.EPIPE
	}
	e := k.h.process.SendFDs(w.own, b, fds)
	for _, key := range keeper.RefusedKeys(b) {
		k.s.seen.costs["keeper: refused"]++
		delete(k.h.held, key)
		k.unheld[key] = true
	}
	return e
}

// Signal implements keeper.SimulatedWorld.
func (k *simKeeper) Signal(id int, s syscall.Signal) {
	if w := k.workers[id]; w != nil && s == syscall.SIGKILL {
		w.killed = true
	}
}

// Close implements keeper.SimulatedWorld.
func (k *simKeeper) Close(fds []int) { k.late = append(k.late, fds...) }

// Closing implements keeper.SimulatedWorld.
func (k *simKeeper) Closing() int { return len(k.late) }

func (k *simKeeper) closeLate() {
	for _, fd := range k.late {
		if e := k.h.process.Close(fd); e != 0 {
			k.s.fail("the keeper closes %d: %v", fd, e)
		}
	}
	k.late = nil
}

// Send implements keeper.SimulatedSystem.
func (w *simWorker) Send(fd int, b []byte, fds []int) sys.Errno {
	k := w.k
	if h := k.h; h.fails > 0 && len(fds) > 0 {
		h.fails--
		return sys.ENOBUFS
	}
	e := w.process.SendFDs(fd, b, fds)
	if (e == sys.EAGAIN || e == sys.ETOOMANYREFS) && len(fds) > 0 {
		k.s.seen.costs["keeper: "+e.Error()]++
		if k.readAll(); k.settles || k.s.restoring || k.s.drain.ever || k.r.IntN(2) == 0 {
			e = w.process.SendFDs(fd, b, fds) // listeners, which are tried again by the clock
		}
	}
	if k.r.IntN(3) == 0 {
		k.readAll()
	}
	return e
}

// Shut implements keeper.SimulatedSystem.
func (w *simWorker) Shut(fd int) { w.process.Close(fd) }

// Wait implements keeper.SimulatedSystem.
func (w *simWorker) Wait() {
	w.k.readAll()
	w.k.standbyActs()
}

// hold gives the keeper something to hold.
func (k *simKeeper) hold(key holdKey, label string, fds []int) error {
	if err := k.runs.w.Hold(key, label, fds); err != nil {
		k.s.seen.costs["keeper: "+err.Error()]++
		return err
	}
	k.files[key] = k.filesOf(k.s.process, fds)
	delete(k.unheld, key)
	return nil
}

func (k *simKeeper) filesOf(p *simkernel.Process, fds []int) (files []any) {
	for _, fd := range fds {
		files = append(files, p.File(fd))
	}
	return files
}

// drop takes it back. What was queued and not sent is not held.
func (k *simKeeper) drop(key holdKey) {
	k.runs.w.Drop(key)
	if _, ok := k.h.held[key]; ok {
		k.before[key] = append(k.before[key], k.files[key])
	}
	delete(k.unheld, key)
}

func (k *simKeeper) flush() error {
	err := k.runs.w.Flush()
	if err == nil {
		k.h.new = nil
	}
	return err
}

// read has the keeper read one message of a worker, and reports whether there was one.
func (k *simKeeper) read(w *simWorker) bool {
	b := k.buf[0][:]
	n, fds, lost, e := k.h.process.RecvFDs(w.own, b, nil)
	if e == sys.ECONNRESET { // the worker has died before it had read everything
		n, fds, lost, e = k.h.process.RecvFDs(w.own, b, nil)
	}
	switch {
	case e == 0 && n > 0:
		k.k.Handle(w.id, b[:n], fds, lost)
		return true
	case e == 0 && !w.hungUp:
		w.hungUp = true
		k.k.HungUp(w.id)
	}
	return false
}

// readAll has it read everything, and send what did not fit before.
func (k *simKeeper) readAll() (some bool) {
	for _, w := range k.ordered {
		some = k.writes(w) || some
		for k.workers[w.id] != nil && k.read(w) {
			some = true
		}
	}
	return some
}

// writes has the keeper send what did not fit before, if there is room.
func (k *simKeeper) writes(w *simWorker) bool {
	if !k.k.Blocked(w.id) || k.h.process.Poll(w.own, sys.PollOut)&sys.PollOut == 0 {
		return false
	}
	k.k.Writable(w.id)
	return true
}

// take has a worker read one message, and reports whether there was one.
func (w *simWorker) take() bool {
	k := w.k
	b := k.buf[1][:]
	n, fds, lost, e := w.process.RecvFDs(w.fd, b, nil)
	if e == sys.EAGAIN {
		return false
	}
	if e != 0 || n == 0 {
		k.s.fail("a worker has lost its keeper: %v", e)
		return false
	}
	asks := keeper.AsksToHandOver(b[:n])
	if !w.w.Take(b[:n], fds, lost) {
		k.s.fail("a worker does not understand its keeper")
	}
	if asks {
		<-k.asks
		if w == k.runs {
			k.toEnd = true
		} else { // it lingers, and gives way
			w.dead = true
		}
	}
	return true
}

// begin has a process that was started do the next thing, and reports whether there was something to do.
func (w *simWorker) begin() bool {
	switch {
	case w.w == nil:
		w.w = keeper.SimulateWorker(w.fd, w)
		w.w.OnHandOver(func() { w.k.asks <- struct{}{} })
		w.w.Hello()
	case w.w.Marked() && !w.said:
		w.early = w.w.Held()
		w.said = true
		w.w.Prepare()
	default:
		return w.take()
	}
	return true
}

// lives calls do for a worker on standby, and ends it if it dies in there.
func (w *simWorker) lives(do func()) {
	defer func() {
		if cause := recover(); cause != nil {
			died, ok := cause.(simkernel.Died)
			if !ok {
				panic(cause)
			}
			w.k.s.seen.deaths[died.Call]++
			w.dead = true
		}
	}()
	do()
}

// reap tells the keeper that a process has ended, when it has read everything.
func (k *simKeeper) reap(w *simWorker, d keeper.Death) {
	w.dead = true
	w.process.Exit()
	for k.read(w) {
	}
	k.h.process.Close(w.own)
	delete(k.workers, w.id)
	k.ordered = slices.DeleteFunc(slices.Clone(k.ordered), func(x *simWorker) bool { return x == w })
	if w == k.runs {
		k.compare(true)
		k.runs = nil
	}
	k.k.Gone(w.id, d)
}

// standby returns the worker on standby, or nil.
func (k *simKeeper) standby() *simWorker { return k.workers[k.k.Standby()] }

// standbyActs has it do the next thing.
func (k *simKeeper) standbyActs() (some bool) {
	if w := k.standby(); w != nil && w != k.runs && !w.dead && !w.killed {
		w.lives(func() { some = w.begin() })
	}
	return some
}

// reapOthers ends those that the keeper has killed or that have died, but for the one that works.
func (k *simKeeper) reapOthers() {
	for _, w := range k.ordered {
		if w == k.runs || !w.killed && !w.dead {
			continue
		}
		if l := k.s.lingererOf(w.process); l != nil {
			k.s.lingererDies(l)
		}
		k.reap(w, keeper.Death{Signal: 9})
	}
}

// lingers returns the workers that linger.
func (k *simKeeper) lingers() (all []*simWorker) {
	for _, w := range k.ordered {
		if k.s.lingererOf(w.process) != nil {
			all = append(all, w)
		}
	}
	return all
}

// lingererActs has one of them read a message.
func (k *simKeeper) lingererActs() (some bool) {
	all := k.lingers()
	w := all[k.r.IntN(len(all))]
	k.s.lingererLives(k.s.lingererOf(w.process), func() { some = w.take() })
	return some
}

// lingererEnded is called when the process of a worker that lingered has ended.
func (k *simKeeper) lingererEnded(p *simkernel.Process) {
	for _, w := range k.ordered {
		w.dead = w.dead || w.process == p
	}
}

// tick lets the keeper do what is due.
func (k *simKeeper) tick() {
	if at := k.k.Next(); !at.IsZero() && !k.Now().Before(at) {
		k.k.Tick()
	}
}

// next returns the process that works next.
func (k *simKeeper) next() *simkernel.Process {
	for i := 0; ; i++ {
		k.reapOthers()
		if k.runs = k.workers[k.k.Active()]; k.runs != nil && !k.runs.dead && !k.runs.killed {
			break
		}
		k.runs = nil
		k.tick()
		if at := k.k.Next(); k.k.Active() == 0 && !at.IsZero() && k.Now().Before(at) {
			k.s.world.Sleep(at.Sub(k.Now()))
		}
		if i > 1000 {
			k.s.fail("no worker is started")
			panic("no worker is started")
		}
	}
	k.toEnd = false
	return k.runs.process
}

// give returns what the process that works has got when the keeper says that it may go.
func (k *simKeeper) give() (all []hold.Held) {
	w := k.runs
	if !k.settles && k.r.IntN(6) == 0 {
		w.process.DieAfter(1 + k.r.IntN(40))
	}
	for i := 0; w.w == nil || !w.w.Going(); i++ {
		k.tick()
		if k.reapOthers(); w.killed {
			panic(simkernel.Died{Call: "killed"})
		}
		switch k.r.IntN(3) {
		case 0:
			k.readAll()
		case 1:
			k.closeLate()
		case 2:
			w.begin()
		}
		if at := k.k.Next(); i > 100 && !at.IsZero() && k.Now().Before(at) { // too many descriptors are on their way
			k.s.world.Sleep(min(at.Sub(k.Now()), time.Millisecond))
		}
		if i > 20_000 {
			k.s.fail("a worker waits for ever for its keeper's word")
			break
		}
	}
	w.process.DieAfter(0)
	dropped := w.w.Dropped()
	for _, item := range append(w.early, w.w.Held()...) {
		if slices.Contains(dropped, item.Key) {
			for _, fd := range item.FDs {
				w.process.Close(fd)
			}
			k.s.seen.costs[keeperDropped]++
			continue
		}
		if _, ok := k.h.held[item.Key]; !ok {
			k.s.fail("a worker gets %x, which nobody holds", item.Key)
		}
		all = append(all, hold.Held{Key: item.Key, Label: item.Label, FDs: item.FDs})
	}
	slices.SortFunc(all, func(a, b hold.Held) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return all
}

// begun is called when the engine works.
func (k *simKeeper) begun() {
	k.runs.w.Ready()
	if k.r.IntN(2) == 0 {
		k.readAll()
	}
}

// ended is called when the process that worked has ended.
func (k *simKeeper) ended() {
	w := k.runs
	if w == nil || k.over {
		return
	}
	if k.s.lingererOf(w.process) != nil {
		for k.read(w) {
		}
		k.compare(true)
		k.runs = nil
	} else {
		k.reap(w, keeper.Death{Signal: 9})
	}
	for key := range k.unheld { // the engine does not know
		k.of.refuses(key)
	}
	clear(k.unheld)
}

// fd returns the keeper's first descriptor of what it holds.
func (k *simKeeper) fd(key holdKey) (fd int) {
	fd = -1
	k.k.Each(func(x [2]uint64, _ string, fds []int) {
		if x == key {
			fd = fds[0]
		}
	})
	return fd
}

func (k *simKeeper) full() bool { return k.budget }

// calm has it take everything at once from now on.
func (k *simKeeper) calm() { k.settles = true }

// refused reports whether the keeper has refused what the engine thinks it holds.
func (k *simKeeper) refused(key holdKey) bool { return k.unheld[key] }

// compare holds what the keeper holds against the model. If the worker has died, what it had queued and not sent is as it was before.
func (k *simKeeper) compare(dead bool) {
	seen := make(map[holdKey]bool)
	n := 0
	k.k.Each(func(key [2]uint64, label string, fds []int) {
		seen[key] = true
		n += len(fds)
		x, ok := k.h.held[key]
		got := k.filesOf(k.h.process, fds)
		unsent := dead && (!ok || slices.Contains(k.h.new, key))
		switch {
		case unsent && slices.ContainsFunc(k.before[key], func(files []any) bool { return slices.Equal(files, got) }):
			x = hold.Held{Key: key, Label: label, FDs: slices.Clone(fds)}
			k.h.held[key], k.files[key] = x, got
		case !ok:
			k.s.fail("the keeper holds %x, and nobody wants that", key)
			return
		}
		if !slices.Equal(got, k.files[key]) || x.Label != label {
			k.s.fail("under %x, the keeper holds other files than it was given", key)
		}
	})
	for key := range k.h.held {
		switch {
		case seen[key]:
		case dead && slices.Contains(k.h.new, key):
			delete(k.h.held, key)
		default:
			k.s.fail("the keeper does not hold %x", key)
		}
	}
	clear(k.before)
	if dead {
		k.h.new = nil
	}
	items, descriptors, _ := k.k.Totals()
	if items != len(seen) || descriptors != n {
		k.s.fail("the keeper holds %d items with %d descriptors, and says %d and %d", len(seen), n, items, descriptors)
	}
	if open, want := k.h.process.Open(), n+len(k.late)+len(k.workers); open != want {
		k.s.fail("the keeper has %d descriptors open, rather than %d", open, want)
	}
	if open, known := k.k.Binaries(); open < known {
		k.s.fail("the keeper knows %d binaries, of which %d are open", known, open)
	}
}

// look compares if nothing is on its way.
func (k *simKeeper) look() {
	if w := k.runs; w != nil && w.w != nil && w.w.Going() && w.w.Empty() && k.h.process.Queued(w.own) == 0 {
		k.compare(false)
		k.lookAtLingering()
	}
}

// closeDropped has everything done that is queued.
func (k *simKeeper) closeDropped() {
	if w := k.runs; w != nil && w.w != nil && w.w.Going() {
		w.w.Due()
	}
	k.readAll()
	k.closeLate()
	k.look()
}

// act has somebody do something, and reports whether there was something to do.
func (k *simKeeper) act() (some bool) {
	if k.s.core == nil || k.s.wrong != nil || k.runs == nil {
		return false
	}
	k.tick()
	switch k.r.IntN(6) {
	case 0, 1:
		all := k.ordered
		w := all[k.r.IntN(len(all))]
		some = k.writes(w) || k.read(w)
	case 2:
		if len(k.s.lingerers) > 0 && k.r.IntN(2) == 0 {
			some = k.lingererActs()
			break
		}
		w := k.runs
		k.of.call(func() { some = w.take() })
	case 3:
		some = k.standbyActs()
	case 4:
		if k.r.IntN(2) == 0 {
			k.closeLate()
		} else if w := k.runs; w.w.IsDue() {
			some = true
			k.of.call(w.w.Due)
		}
	case 5:
		if k.k.Replace(); k.toEnd {
			some = true
			k.handOver()
		}
	}
	k.reapOthers()
	if w := k.runs; w != nil && w.killed && k.s.core != nil {
		k.of.kill()
	}
	return some
}

// handOver has the process that works hand over, as it was asked to.
func (k *simKeeper) handOver() {
	k.toEnd = false
	w := k.runs
	k.of.handOver(func(err error) {
		if err != nil {
			w.w.Stay(err.Error())
			return
		}
		if k.s.core.lingering != nil {
			k.handOverLingers(w)
		} else {
			w.w.HandedOver()
		}
		for range k.r.IntN(8) { // before the process has ended
			k.readAll()
			k.standbyActs()
		}
	})
}

// handOverLingers has a worker hand over that lingers. Few may, for a time that is over in some schedules.
func (k *simKeeper) handOverLingers(w *simWorker) {
	if !w.w.MayLinger() {
		k.s.fail("a worker may not linger")
	}
	w.w.Linger([...]time.Duration{time.Hour, time.Hour, time.Hour, time.Second}[k.r.IntN(4)], 1+k.r.IntN(3))
}

// lookAtLingering checks that the worker knows who lingers, if nothing is on its way.
func (k *simKeeper) lookAtLingering() {
	w := k.runs
	if k.h.process.Queued(w.own) > 0 || w.process.Queued(w.fd) > 0 || k.k.Blocked(w.id) {
		return
	}
	var want, told []int
	for _, l := range k.ordered {
		if l.dead || l.killed { // the keeper does not know yet
			return
		}
	}
	for _, l := range k.lingers() {
		want = append(want, 1000+l.id)
	}
	all, _ := w.w.Lingering()
	for _, l := range all {
		told = append(told, l.PID)
	}
	if !slices.Equal(told, want) {
		k.s.fail("the workers %v linger, and the one that works is told of %v", want, told)
	}
}

// ask asks for another worker.
func (k *simKeeper) ask(how int) bool {
	if k.standby() != nil {
		return false
	}
	if how%2 == 0 {
		k.k.Signal(syscall.SIGUSR2)
		return true
	}
	w := k.runs
	k.of.call(func() { w.w.Restart() })
	return true
}

// acts lets all do something for a while.
func (k *simKeeper) acts(n int) (some bool) {
	for range 1 + n%16 {
		some = k.act() || some
	}
	return some
}

// standbyDies has the worker on standby die at a place, or at once.
func (k *simKeeper) standbyDies(n int) bool {
	w := k.standby()
	if w == nil {
		return false
	}
	if n%8 == 0 {
		w.dead = true
		k.reapOthers()
	} else {
		w.process.DieAfter(1 + n%16)
	}
	return true
}

// idle is what happens between two steps.
func (k *simKeeper) idle() {
	if now := k.s.world.Elapsed(); now > k.doneAt+holderLast/2 { // it is never as slow as that
		k.doneAt = now
		k.readAll()
		k.closeLate()
	}
	for range k.r.IntN(3) {
		k.act()
	}
	k.look()
}

// rest has everything done that is under way, and reports whether there was something.
func (k *simKeeper) rest() (some bool) {
	k.settles = true
	defer func() { k.settles = false }()
	if w := k.standby(); w != nil {
		w.process.DieAfter(0)
	}
	for still := 0; still < 60 && k.s.wrong == nil; still++ {
		if k.act() {
			still, some = 0, true
		}
	}
	return some
}

// leaves is called when the process is about to end for good.
func (k *simKeeper) leaves() {
	k.rest()
	k.runs.process.DieAfter(0) // it may be another one by now
	k.runs.w.Exiting()
}

// close ends everything.
func (k *simKeeper) close() {
	k.over = true
	for _, w := range k.ordered {
		w.process.Exit()
	}
	k.h.process.Exit()
	simMessages.Put(k.buf)
}

// lingererOf returns the process that lingers, if it is this one; nil: it is not.
func (s *simulation) lingererOf(p *simkernel.Process) *simLingerer {
	for _, l := range s.lingerers {
		if l.process == p {
			return l
		}
	}
	return nil
}
