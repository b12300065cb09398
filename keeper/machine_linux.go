package keeper

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// port is what a machine may do to the world.
type port interface {
	// start starts a worker from an open binary. The port chooses its id. What it writes before its first message is kept apart, or goes
	// where the keeper's own output goes.
	start(b *executable, apart bool) (id, pid int, err error)
	// send sends one message without waiting. After a full the machine is told by writable.
	send(id int, p []byte, fds []int) sent
	// signal sends a signal to a worker that has not been reaped.
	signal(id int, sig syscall.Signal)
	// close closes descriptors on a goroutine, because closing may block. It copies fds. closing returns
	// how many may still be open.
	close(fds []int)
	closing() int
	// open opens the binary at a path; an empty one is that of the configuration.
	open(path string) (*executable, error)
	release(b *executable)
	// broker has Config.Broker open what a worker asks for. The machine is told by brokered.
	broker(id int, seq uint32, policy, request string)
	// replace executes b in place of the keeper, or answers by machine.notReplaced.
	replace(b *executable)
}

// sent is the result of a send.
type sent uint8

const (
	sentAll  sent = iota
	sentFull      // the socket is full
	sentMany      // too many descriptors are on their way: ETOOMANYREFS
	sentLost      // nobody is at the other end
)

// executable is an open binary.
type executable struct {
	fd   int
	path string
}

// machine is the keeper without its system calls: what has happened goes in, what is to be done comes out
// through the port. All methods run on one goroutine.
//
//	            start            hello           prepared, all items     ready
//	(nothing) --------> started --------> given ---------------------> going -----> ready
//	     ^                                  | standby: waits for the                  |
//	     |                                  | end of the active worker                |
//	     +---------------------- died, or killed after a deadline <-------------------+
//
// There is at most one active worker, which alone may change what is held, and at most one on standby.
type machine struct {
	cfg   Config
	limit int // of descriptors that are held
	port  port
	table *table

	standbyLabels map[string]bool
	policy        string // of the last worker that was ready
	resume        func() // ends what Config.Paused has begun, or nil
	active        *peer
	standby       *peer
	lingering     []*peer // that have handed over and go on, the oldest first
	lastLingered  Death   // of the last one of those that has ended

	current *executable // what is started next
	good    *executable // has worked for Config.Good, or nil
	opened  []*executable

	startAt    time.Time // when to start a worker, or zero
	reason     Reason    // of the next start
	fellBack   bool
	everReady  bool
	deaths     int // in a row
	restarts   int // since the keeper began
	starts     [reasonCount]int
	died       Death
	diedAt     time.Time // end of the last worker that was ready
	failed     Death     // of the last worker on standby
	stopping   bool
	stopSignal syscall.Signal
	pending    []syscall.Signal // for a worker that cannot take them yet
	notifyAt   time.Time

	upgrade Upgrade
	from    *executable // what the upgrade comes from
	to      *executable // where it leads
	asker   int         // id of the worker that asked, or 0
	token   uint64      // how it knows the answer
	// restartDue: the active worker wants to be replaced, and what an upgrade leads to may not know why.
	restartDue bool
	upgradeDue bool // a signal asked for an upgrade during a restart
	replacing  bool // the port was asked to replace the keeper and has not answered
	executing  bool // it is about to: if this process ends now, a signal has ended it

	finished bool
	exitCode int

	msg     message // of handle
	scratch []byte
	fds     []int
	held    int // changes since the last kindHeld
}

// peer is one worker process.
type peer struct {
	id, pid  int
	binary   *executable
	reason   Reason
	hello    bool
	prepared bool
	going    bool // was told to go
	ready    bool
	readyAt  time.Time

	asked      bool // to hand over
	handedOver bool
	exiting    bool
	killed     string // why, if the keeper has killed it
	failing    string // why it is about to exit, as it says itself
	lied       bool
	apart      bool // what it wrote before it connected was kept apart
	again      bool // it is to be started again without that

	startBy  time.Time // deadline of the phase it is in, or zero
	aliveBy  time.Time
	suspect  bool // aliveBy has passed once
	endBy    time.Time
	endWhy   string
	hand     handOut
	seq      uint32
	out      []outgoing // messages that did not fit
	blocked  bool
	lastHold uint32

	knowsLinger  bool      // it knows messages about workers that linger
	lingersSince time.Time // zero: it does not linger
	dismissed    bool      // it lingers, and was asked to end

	asks    bool   // it knows messages about policies and requests
	policy  string // of this worker, or of the one before
	partial []byte // of a policy that is arriving
	sealed  bool   // it has said which policy is its own
	pending []asked
}

// maxOut bounds peer.out: a worker that does not read its messages is ended.
const maxOut = 256

func newMachine(cfg Config, limit int, p port) *machine {
	m := &machine{cfg: cfg, limit: limit, port: p, table: newTable(), standbyLabels: make(map[string]bool)}
	for _, s := range cfg.Standby {
		m.standbyLabels[s] = true
	}
	return m
}

// begin starts the first worker.
func (m *machine) begin(now time.Time) error {
	b, err := m.port.open("")
	if err != nil {
		return err
	}
	m.opened = append(m.opened, b)
	m.current = b
	if m.cfg.NotifyEvery > 0 {
		m.notifyAt = now.Add(m.cfg.NotifyEvery)
	}
	if err := m.startActive(now); err != nil {
		return err
	}
	return nil
}

// startActive starts the worker that is next.
func (m *machine) startActive(now time.Time) error {
	m.startAt, m.restartDue = time.Time{}, false
	m.endPause()
	p, err := m.startPeer(m.current, m.reason, false, now)
	if err != nil {
		return err
	}
	m.setActive(p)
	return nil
}

// setActive makes p the worker that is to work.
func (m *machine) setActive(p *peer) {
	m.active = p
	m.starts[p.reason]++
}

func (m *machine) startPeer(b *executable, r Reason, apart bool, now time.Time) (*peer, error) {
	id, pid, err := m.port.start(b, apart)
	if err != nil {
		return nil, err
	}
	m.cfg.Log(Event{Kind: WorkerStarted, PID: pid, Reason: r, Binary: b.path, Items: m.table.len()})
	return &peer{id: id, pid: pid, binary: b, reason: r, apart: apart, policy: m.policy, startBy: now.Add(m.cfg.ConnectTimeout)}, nil
}

func (m *machine) peer(id int) *peer {
	switch {
	case m.active != nil && m.active.id == id:
		return m.active
	case m.standby != nil && m.standby.id == id:
		return m.standby
	}
	for _, p := range m.lingering {
		if p.id == id {
			return p
		}
	}
	return nil
}

// handle handles one message of a worker. Its descriptors belong to the machine. lost says that some of
// them, or part of the message, did not arrive.
func (m *machine) handle(id int, b []byte, fds []int, lost bool, now time.Time) {
	p := m.peer(id)
	if p == nil || p.lied || !p.lingersSince.IsZero() {
		m.port.close(fds)
		return
	}
	msg := &m.msg
	if err := msg.parse(b); err != nil {
		m.port.close(fds)
		m.lie(p, err.Error())
		return
	}
	if msg.kind == kindHold {
		m.hold(p, msg, fds, lost)
		return
	}
	if len(fds) > 0 {
		m.port.close(fds)
		m.lie(p, "descriptors with a message that has none")
		return
	}
	if !msg.kind.fromWorker() {
		m.lie(p, "a message that only the keeper sends")
		return
	}
	if !p.hello && msg.kind != kindHello {
		m.lie(p, "its first message was not the first")
		return
	}
	switch msg.kind {
	case kindHello:
		m.onHello(p, msg, now)
	case kindGot:
		m.onGot(p, msg, now)
	case kindPrepared:
		m.onPrepared(p, msg, now)
	case kindReady:
		m.onReady(p, now)
	case kindAlive:
		if p.ready && !p.asked {
			p.suspect = false
			m.setAlive(p, now)
		}
		m.tellTotals(p)
	case kindNotify:
		if p == m.active {
			m.passOn(msg.text(0))
		}
	case kindExiting:
		p.exiting = true
		m.onExiting(p, now)
	case kindFailing:
		p.failing = printable(msg.text(0))
	case kindStaying:
		m.onStaying(p, printable(msg.text(0)), now)
	case kindTimes:
		if p == m.active {
			m.cfg.set(timesOf(msg, 0))
			if p.ready && !p.asked {
				m.setAlive(p, now)
			}
		}
	case kindHandedOver:
		if !p.asked || p.handedOver {
			m.lie(p, "handed over unasked")
			return
		}
		p.handedOver = true
		if msg.word(0) != 0 {
			m.kill(p, "it does not end itself at a hand-over")
		} else if most := time.Duration(msg.word(1)); most > 0 && p == m.active {
			m.linger(p, min(most, maxLinger), int(min(msg.word(2), MaxLingering)), now)
			return
		}
		m.giveEarly(now)
	case kindDrop:
		m.drop(p, msg)
	case kindPolicy:
		m.onPolicy(p, msg)
	case kindAsk:
		m.onAsk(p, msg, now)
	case kindUpgrade, kindRestart:
		if p != m.active || !p.ready {
			m.lie(p, "an upgrade before it was ready")
			return
		}
		if msg.kind == kindRestart {
			m.restartDue = true
			m.beginRestart(now)
			return
		}
		m.beginUpgrade(p.id, msg.word(0), msg.text(0), msg.word(1) != 0, false, now)
	}
}

func (m *machine) onHello(p *peer, msg *message, now time.Time) {
	if p.hello {
		m.lie(p, "two first messages")
		return
	}
	if msg.word(0) != protocol {
		m.lie(p, "another version of the protocol")
		return
	}
	p.hello = true
	if p.apart && msg.word(1)&featureOutput == 0 {
		p.again = true
		m.kill(p, "a version that cannot take over the keeper's output; it is started with it")
		return
	}
	p.startBy = now.Add(m.cfg.ReadyTimeout)
	p.asks = msg.word(1)&featureAsk != 0
	m.sendStart(p, kindWelcome)
	p.knowsLinger = msg.word(1)&featureLinger != 0
	m.sendPolicy(p)
	if p == m.active {
		m.tellLingering()
	}
	p.hand = handOut{on: true, full: p == m.active, window: firstWindow}
	m.pump(p, now)
}

func (m *machine) onPrepared(p *peer, msg *message, now time.Time) {
	if p.prepared || !p.hand.marked {
		m.lie(p, "prepared too early or twice")
		return
	}
	p.prepared = true
	if p == m.standby {
		p.startBy = time.Time{} // from now on the old worker's deadline counts
		m.upgrade.Info = msg.text(0)
		m.standbyPrepared(now)
		return
	}
	m.tryGo(p, now)
}

// tryGo tells the active worker to go, if nothing is missing.
func (m *machine) tryGo(p *peer, now time.Time) {
	if p != m.active || p.going || !p.prepared || !p.hand.complete() {
		return
	}
	p.going = true
	p.startBy = now.Add(m.cfg.ReadyTimeout)
	m.sendStart(p, kindGo)
	m.pump(p, now)
}

func (m *machine) onReady(p *peer, now time.Time) {
	if !p.going {
		m.lie(p, "ready before it was told to go")
		return
	}
	if p.ready {
		return
	}
	p.ready, p.readyAt, p.startBy = true, now, time.Time{}
	m.setAlive(p, now)
	m.cfg.Log(Event{Kind: WorkerReady, PID: p.pid, Reason: p.reason, Binary: p.binary.path, Items: m.table.len()})
	if p.asks {
		m.policy = p.policy
	}
	if !m.everReady {
		m.everReady = true
		m.cfg.Notify("READY=1")
	}
	m.signalPending(p)
	if m.upgrade.State == Starting && p.binary == m.to {
		m.step(Proving, "")
	}
	m.tick(now)
}

// signalPending sends a worker the signals that have come while none could take them.
func (m *machine) signalPending(p *peer) {
	for _, s := range m.pending {
		m.port.signal(p.id, s)
	}
	m.pending = nil
}

func (m *machine) setAlive(p *peer, now time.Time) {
	p.aliveBy = time.Time{}
	if m.cfg.Watchdog > 0 {
		p.aliveBy = now.Add(m.cfg.Watchdog)
	}
}

// notifiable are the assignments that workers may pass on. The keeper is the service's main process and
// says the rest itself.
var notifiable = []string{"STATUS=", "RELOADING=1", "READY=1", "STOPPING=1", "MONOTONIC_USEC=", "EXTEND_TIMEOUT_USEC=", "ERRNO="}

func (m *machine) passOn(text string) {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if slices.ContainsFunc(notifiable, func(s string) bool { return strings.HasPrefix(line, s) }) {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		m.cfg.Notify(strings.Join(lines, "\n"))
	}
}

// lie ends a worker that sent what no worker sends.
func (m *machine) lie(p *peer, what string) {
	if p.lied {
		return
	}
	p.lied = true
	m.cfg.Log(Event{Kind: WorkerLied, PID: p.pid, Binary: p.binary.path, Text: what})
	m.kill(p, what)
}

// kill ends a worker. What happens next is decided when it has gone.
func (m *machine) kill(p *peer, why string) {
	if p.killed == "" {
		p.killed = why
		e := Event{Kind: WorkerKilled, PID: p.pid, Binary: p.binary.path, Items: m.table.len(), Text: why}
		if p == m.standby {
			e.Upgrade = m.upgrade
		}
		m.cfg.Log(e)
	}
	p.startBy, p.aliveBy, p.endBy = time.Time{}, time.Time{}, time.Time{}
	m.port.signal(p.id, syscall.SIGKILL)
}

// signal handles a signal to the keeper.
func (m *machine) signal(s syscall.Signal, now time.Time) {
	switch s {
	case syscall.SIGUSR2:
		if m.upgrade.Restart && !m.upgrade.Over() && !m.restarted() {
			m.upgradeDue = true // whoever has sent it cannot send it again
			return
		}
		m.beginUpgrade(0, 0, "", false, false, now)
		return
	case syscall.SIGTERM, syscall.SIGINT:
		m.stop(s, now)
		return
	}
	switch {
	case m.active != nil && m.active.ready && !m.active.asked:
		m.port.signal(m.active.id, s)
	case !slices.Contains(m.pending, s): // before its handlers are set, a signal would end it
		m.pending = append(m.pending, s)
	}
}

// stop tells the worker to end, which may take its time. Of one that hands over, or has taken over and is not ready, nothing can be asked: the first
// signal is the next one's, or what it holds would end at once. A second one does not wait.
func (m *machine) stop(s syscall.Signal, now time.Time) {
	again, p := m.stopping, m.active
	if m.finished { // what lingers has been asked to end
		for _, q := range m.lingering {
			m.kill(q, "the keeper stops")
		}
		return
	}
	if !again {
		m.stopping, m.stopSignal = true, s
		m.cfg.Notify("STOPPING=1")
	}
	waits := p != nil && m.everReady && (!p.ready || p.asked)
	if m.standby != nil && (again || !waits) {
		m.kill(m.standby, "the keeper stops")
	}
	switch {
	case p == nil:
		m.finish(128+int(s), now)
	case waits && !again:
		m.pending = append(m.pending, s)
	default:
		m.port.signal(p.id, s)
	}
}

func (m *machine) finish(code int, now time.Time) {
	m.finished, m.exitCode = true, code
	for _, p := range m.lingering { // the flows have ended, and what is left is on its way to clients
		m.endLingering(p, "the keeper ends", now)
	}
	m.startAt = time.Time{}
	m.endPause()
}

// sendStart sends a message with what Start tells.
func (m *machine) sendStart(p *peer, kind msgKind) {
	var diedAt uint64
	if !m.diedAt.IsZero() {
		diedAt = uint64(sys.MonotonicAt(m.diedAt))
	}
	words := []uint64{protocol, uint64(p.reason), uint64(m.died.PID), uint64(m.died.Code), uint64(m.died.Signal), diedAt, uint64(m.deaths),
		uint64(m.restarts), wordOf(m.fellBack), uint64(m.cfg.MaxItems), uint64(m.limit), uint64(m.table.len()), uint64(m.table.descriptors), uint64(m.ackEvery())}
	words = append(words, m.upgradeWords(p)...)
	for _, n := range m.starts {
		words = append(words, uint64(n))
	}
	words = append(words, m.features())
	p.send(m, appendControl(nil, kind, 0, words, append([]string{m.died.Why}, m.upgradeTexts()...)...))
}
