//go:build penstock_invariants

package keeper

import (
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// With the build tag penstock_invariants, the two ends of this package can run in a simulation, without processes, sockets and a clock: the machine of
// the keeper with its table, and the worker with its outbox. What [Run] and the worker's goroutines do, the simulation does when it says so.

// SimulatedWorld does what a [Simulated] keeper asks for.
type SimulatedWorld interface {
	Now() time.Time
	// Start starts a worker. ID tells it from all others.
	Start() (id, pid int, err error)
	// Send sends a worker one message without waiting, as sendmsg(2) does.
	Send(id int, p []byte, fds []int) sys.Errno
	Signal(id int, s syscall.Signal)
	// Close closes descriptors, now or later. Closing returns how many may still be open.
	Close(fds []int)
	Closing() int
}

// Simulated is a keeper in a simulation.
type Simulated struct {
	m        *machine
	w        SimulatedWorld
	cfg      Config
	replaces *executable // the keeper is to be another binary
	Replaced int         // how often it has become another one
	open     int         // binaries
}

// Simulate begins a keeper that holds at most limit descriptors.
func Simulate(cfg Config, limit int, w SimulatedWorld) (*Simulated, error) {
	s := &Simulated{w: w, cfg: cfg.withDefaults()}
	s.m = newMachine(s.cfg, limit, simulatedPort{s})
	return s, s.m.begin(w.Now())
}

// Handle handles a message of a worker. Its descriptors belong to the keeper.
func (s *Simulated) Handle(id int, b []byte, fds []int, lost bool) {
	s.m.handle(id, b, fds, lost, s.w.Now())
}

// Writable is called when there is room again for messages to a worker that was too slow.
func (s *Simulated) Writable(id int) { s.m.writable(id, s.w.Now()) }

// HungUp is called when a worker has closed its end, and Gone when its process has ended and its last message was handled.
func (s *Simulated) HungUp(id int)        { s.m.hungUp(id, s.w.Now()) }
func (s *Simulated) Gone(id int, d Death) { s.m.gone(id, d, "", s.w.Now()) }

// Signal is called with a signal to the keeper.
func (s *Simulated) Signal(sig syscall.Signal) { s.m.signal(sig, s.w.Now()) }

// Next returns when Tick has something to do; zero: never.
func (s *Simulated) Next() time.Time { return s.m.next() }
func (s *Simulated) Tick()           { s.m.tick(s.w.Now()) }

// Active and Standby return the ids of the two workers; 0: there is none.
func (s *Simulated) Active() int  { return idOf(s.m.active) }
func (s *Simulated) Standby() int { return idOf(s.m.standby) }

func idOf(p *peer) int {
	if p == nil {
		return 0
	}
	return p.id
}

// Blocked reports whether messages wait until a worker reads.
func (s *Simulated) Blocked(id int) bool {
	p := s.m.peer(id)
	return p != nil && (p.blocked || len(p.out) > 0)
}

// LastUpgrade returns the latest upgrade.
func (s *Simulated) LastUpgrade() Upgrade { return s.m.upgrade }

// Over reports whether the keeper has ended.
func (s *Simulated) Over() bool { return s.m.over() }

// Each calls f with everything that is held.
func (s *Simulated) Each(f func(key [2]uint64, label string, fds []int)) { s.m.table.each(f) }

// Totals returns how much that is, as the keeper counts it.
func (s *Simulated) Totals() (items, descriptors, labels int) {
	return s.m.table.len(), s.m.table.descriptors, s.m.table.labelBytes
}

// Binaries returns how many binaries are open, and how many the keeper knows.
func (s *Simulated) Binaries() (open, known int) { return s.open, len(s.m.opened) }

// Replace makes the keeper another binary, if it is to be: its state is saved and read, and nothing else is left of it. It waits for what [Run]
// waits for.
func (s *Simulated) Replace() {
	b := s.replaces
	m := s.m
	if b == nil {
		return
	}
	s.replaces = nil
	if m.standby != nil || !m.upgrade.Over() || m.active == nil || !m.active.ready || m.stopping || len(m.active.pending) > 0 || len(m.active.out) > 0 {
		m.notReplaced(b, "something else had to be done meanwhile")
		return
	}
	m.executing = true
	m.tellUpgrade()
	m.upgrade.Keeper = "upgraded"
	now := s.w.Now()
	next, err := load(m.save(map[int]savedConn{m.active.id: {fd: 0, pid: m.active.pid}}), s.cfg, m.limit, now)
	if err != nil {
		m.notReplaced(b, err.Error())
		return
	}
	s.m = next.m
	s.m.port = simulatedPort{s}
	s.m.replaced(now)
	s.Replaced++
}

// simulatedPort is the port of a simulated keeper.
type simulatedPort struct{ s *Simulated }

func (p simulatedPort) start(*executable, bool) (id, pid int, err error) { return p.s.w.Start() }
func (p simulatedPort) send(id int, b []byte, fds []int) sent {
	return resultOf(p.s.w.Send(id, b, fds))
}
func (p simulatedPort) signal(id int, sig syscall.Signal)  { p.s.w.Signal(id, sig) }
func (p simulatedPort) close(fds []int)                    { p.s.w.Close(slices.Clone(fds)) }
func (p simulatedPort) closing() int                       { return p.s.w.Closing() }
func (p simulatedPort) replace(b *executable)              { p.s.replaces = b }
func (p simulatedPort) broker(int, uint32, string, string) {}

func (p simulatedPort) open(path string) (*executable, error) {
	p.s.open++
	return &executable{fd: -1, path: path}, nil
}

func (p simulatedPort) release(*executable) { p.s.open-- }

// SimulatedWorker is a worker in a simulation. Its goroutines are calls.
type SimulatedWorker struct {
	*Worker
	msg message
}

// SimulatedSystem makes the calls of a simulated worker.
type SimulatedSystem interface {
	Send(fd int, p []byte, fds []int) sys.Errno
	Shut(fd int)
	// Wait is called when there is no room for a message. When it returns there is some.
	Wait()
}

// SimulateWorker returns a worker whose connection to the keeper is fd. It has not said anything yet.
func SimulateWorker(fd int, k SimulatedSystem) *SimulatedWorker {
	return &SimulatedWorker{Worker: makeWorker(fd, simulatedRaw{k}, k, k.Shut)}
}

// Hello is the first message.
func (w *SimulatedWorker) Hello() error { return w.hello() }

// Take handles a message of the keeper, as the goroutine that reads does. Its descriptors belong to the worker.
func (w *SimulatedWorker) Take(b []byte, fds []int, lost bool) bool {
	return w.take(&w.msg, b, fds, lost)
}

// Due sends what is left, as the goroutine that writes does.
func (w *SimulatedWorker) Due() {
	w.wait(w.sendDue)
}

// Prepare is the first half of Prepared, which does not wait.
func (w *SimulatedWorker) Prepare() error {
	return w.tell(appendControl(nil, kindPrepared, 0, nil, ""))
}

// Marked reports whether the items for standby are there, and Going whether all are.
func (w *SimulatedWorker) Marked() bool { return closed(w.mark) }
func (w *SimulatedWorker) Going() bool  { return closed(w.goOn) }

// IsDue reports whether Due has something to send.
func (w *SimulatedWorker) IsDue() bool { return len(w.out.drops) > 0 || w.aliveDue }

// Empty reports whether nothing is queued.
func (w *SimulatedWorker) Empty() bool { return w.out.empty() && !w.aliveDue }

// What a message is, for those who look at it on its way.

// AsksToHandOver reports whether a message of the keeper does.
func AsksToHandOver(b []byte) bool { return msgKind(b[0]) == kindHandOver }

// RefusedKeys returns the keys of a message of the keeper that has refused something.
func RefusedKeys(b []byte) [][2]uint64 {
	var msg message
	if msgKind(b[0]) != kindRefused || msg.parse(b) != nil {
		return nil
	}
	return msg.keys
}

// simulatedRaw is the connection of a simulated worker.
type simulatedRaw struct{ k SimulatedSystem }

func (r simulatedRaw) Control(f func(uintptr)) error   { f(0); return nil }
func (r simulatedRaw) Read(f func(uintptr) bool) error { return syscall.EINVAL }
func (r simulatedRaw) Write(f func(uintptr) bool) error {
	for !f(0) {
		r.k.Wait()
	}
	return nil
}
