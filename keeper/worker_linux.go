package keeper

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Worker is the worker's end of the connection to its keeper. Its methods may be called from several
// goroutines.
type Worker struct {
	file *os.File
	raw  syscall.RawConn
	shut func(fd int) // closes a descriptor
	lost chan struct{}
	mark chan struct{} // closed when the items for standby are there
	goOn chan struct{} // closed when the keeper says go
	wake chan struct{} // the writer has something to do

	mu        sync.Mutex
	out       outbox
	start     Start
	diedAt    int64 // CLOCK_MONOTONIC
	isReady   time.Time
	items     []Item
	marked    int                // how many of items were there at the mark
	returned  map[[2]uint64]bool // by Held, before Prepared; then whether it has come again since
	begun     bool               // the items have come again from the beginning
	going     bool
	handed    bool
	aliveDue  bool
	dropDue   bool // the writer will be woken for drops
	upgrade   Upgrade
	executing bool // the keeper executes its new binary
	token     uint64
	watchers  map[uint64]func(Upgrade)
	onHand    func()
	handDue   bool
	onRefused func(key [2]uint64)
	refused   uint64

	mayLinger bool // the keeper lets workers linger
	lingering []Lingering
	lingered  Death

	mayAsk    bool // the keeper answers
	inherited []byte
	sealed    bool
	asks      chan struct{} // room for requests that wait
	lastAsk   uint32
	open      map[uint32]chan answered
}

// Connect connects a worker to the keeper that started it. It returns nil and no error if no keeper
// did: the program then calls [Run], or works without one.
//
// Connect takes the environment variables that the keeper has set out of the environment. It waits
// until the keeper has answered, and until the items with the labels of [Config.Standby] are there.
//
// A worker from another binary, for an upgrade, has the keeper's standard output and standard error from Connect on.
// What it has written before is passed on then; if it ends before, the keeper has it ([Upgrade].Reason, [WorkerWrote]).
func Connect() (*Worker, error) {
	text, ok := os.LookupEnv(workerEnv)
	if !ok {
		return nil, nil
	}
	os.Unsetenv(workerEnv)
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 || !sys.IsPair(fd) {
		return nil, fmt.Errorf("keeper: %s=%s is not a connection to a keeper", workerEnv, text)
	}
	// The pair was made by the keeper, and a keeper is the parent.
	if pid, e := sys.PeerPID(fd); e != 0 || pid != os.Getppid() {
		sys.Linux{}.Close(fd)
		return nil, ErrLost
	}
	sys.SetCloseOnExec(fd, true)
	sys.SetNonblock(fd)
	takeOutput()
	nameProcess()
	w, err := newWorker(fd)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.mark:
		return w, nil
	case <-w.lost:
		return nil, ErrLost
	}
}

// newWorker takes over fd and says hello.
func newWorker(fd int) (*Worker, error) {
	f := os.NewFile(uintptr(fd), "keeper")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("keeper: %w", err)
	}
	w := makeWorker(fd, raw, new(sys.FDBuffer), func(fd int) { sys.Linux{}.Close(fd) })
	w.file = f
	if err := w.hello(); err != nil {
		f.Close()
		return nil, err
	}
	go w.read()
	go w.write()
	return w, nil
}

// makeWorker returns a worker whose end of the connection is fd, and which has not said anything yet.
func makeWorker(fd int, raw syscall.RawConn, socket messages, shut func(fd int)) *Worker {
	w := &Worker{raw: raw, shut: shut, lost: make(chan struct{}), mark: make(chan struct{}), goOn: make(chan struct{}), wake: make(chan struct{}, 1), returned: make(map[[2]uint64]bool),
		watchers: make(map[uint64]func(Upgrade)), asks: make(chan struct{}, maxAsks), open: make(map[uint32]chan answered)}
	w.out.fd, w.out.socket = fd, socket
	return w
}

func (w *Worker) hello() error {
	return w.tell(appendControl(nil, kindHello, 0, []uint64{protocol, featureAsk | featureOutput | featureLinger}))
}

// Held returns what the workers before this one gave the keeper to hold.
//
// Until [Worker.Prepared] has returned, these are items with the labels of [Config.Standby]. In an upgrade, the old
// worker still runs then, and may change or drop them. After that these are the other items; each item is returned
// once. The descriptors belong to the caller. They are duplicates: closing them does not change what is held.
func (w *Worker) Held() []Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.marked
	if w.going {
		n = len(w.items)
	}
	var items []Item
	for _, item := range w.items[:n] {
		if _, ok := w.returned[item.Key]; !ok {
			items = append(items, item)
		}
	}
	if w.going {
		w.items, w.marked = nil, 0
		return items
	}
	for _, item := range items {
		w.returned[item.Key] = false
	}
	return items
}

// Dropped returns the keys of items that Held returned before Prepared had, and that the worker before this one has dropped
// since. They are not held any more, and whoever has their descriptors closes them.
func (w *Worker) Dropped() (keys [][2]uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.going || !w.begun {
		return nil
	}
	for key, again := range w.returned {
		if !again {
			keys = append(keys, key)
		}
	}
	return keys
}

// Hold gives the keeper duplicates of descriptors to hold under a key that is not in use. It only queues them. They
// are held when a Flush has returned nil, and until then, or until Drop, they must stay open. The
// descriptors still belong to the caller. Hold does not wait. Items of the last worker, which [Worker.Held] returns,
// are still held.
//
// An error says that the item cannot be held, and is not queued: the label is too long, or there is no
// descriptor or too many of them ([ErrItem]), the keeper's limits are reached ([ErrFull]), too much is queued ([ErrBusy]),
// or there is no keeper any more ([ErrLost]).
func (w *Worker) Hold(key [2]uint64, label string, fds []int) error {
	if w == nil {
		return errNilWorker
	}
	if len(label) > MaxLabel || len(fds) == 0 || len(fds) > MaxDescriptors {
		return ErrItem
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isLost() || w.handed {
		return ErrLost
	}
	return w.out.hold(key, label, fds)
}

// Drop ends the holding of an item, or takes back what was queued. The keeper closes its duplicates. Drop does not wait and never
// fails: it is sent with the next Flush, or a moment later without one. A key that is not held
// has no effect.
func (w *Worker) Drop(key [2]uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isLost() && !w.handed {
		w.out.drop(key)
		if !w.dropDue {
			w.dropDue = true
			time.AfterFunc(dropAfter, w.wakeWriter)
		}
	}
}

// Flush sends what Hold and Drop have queued. It does not wait. If it returns nil, all that was given to
// Hold before, by whichever goroutine, is held: it survives this process from now on. If it
// returns an error, some of it is not held yet and stays queued: the caller either calls Flush again a little
// later, or drops what it does not want to be held. The error is [ErrBusy] if the keeper has not read what was
// sent before, or this worker was not told to go yet (see Prepared), ErrLost, or that of the system call, such as EBADF: then
// the items with such a descriptor are no longer queued.
func (w *Worker) Flush() error {
	if w == nil {
		return errNilWorker
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.isLost() || w.handed:
		return ErrLost
	case w.out.empty() && !w.going:
		return nil
	case w.out.empty():
		// What was held before still is, unless the keeper has gone and the reader does not know it yet. A keeper that
		// has no room for a message is there.
		if w.out.send(appendHeader(nil, kindAlive, 0), nil) && w.out.broken {
			return ErrLost
		}
		return nil
	case !w.going:
		return ErrBusy
	}
	err := w.out.flush()
	if !w.out.empty() {
		w.wakeWriter()
	}
	return err
}

// Start describes why this worker was started.
func (w *Worker) Start() Start {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.start
	if w.diedAt != 0 {
		now := sys.MonotonicNow()
		if !w.isReady.IsZero() {
			now = sys.MonotonicAt(w.isReady)
		}
		s.Downtime = time.Duration(now - w.diedAt)
	}
	return s
}

// Prepared says that this worker is able to run: its configuration and the items that it has are
// valid. info is shown to whoever asked for an upgrade. Prepared waits until the worker before
// this one has ended, and until all items have arrived. When it has returned nil, the caller does what
// makes it run, and calls Ready.
//
// A worker that finds itself unable to run calls [Worker.Failing] and exits instead.
func (w *Worker) Prepared(info string) error {
	w.tell(appendControl(nil, kindPrepared, 0, nil, info))
	switch {
	case w == nil:
		return errNilWorker
	case w.raw == nil: // the zero Worker
		return ErrLost
	}
	select {
	case <-w.goOn:
	case <-w.lost:
	}
	if closed(w.goOn) { // also if the keeper has gone since: everything is here, and nobody else has it
		return nil
	}
	return ErrLost
}

// Ready says that this worker runs.
func (w *Worker) Ready() error {
	if w == nil {
		return errNilWorker
	}
	w.mu.Lock()
	w.isReady = time.Now()
	w.mu.Unlock()
	return w.tell(appendHeader(nil, kindReady, 0))
}

// Alive says that this worker still runs. A worker that is ready calls it several times within
// [Config.Watchdog]. Alive does not wait.
func (w *Worker) Alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isLost() && !w.out.send(appendHeader(nil, kindAlive, 0), nil) {
		w.aliveDue = true
		w.wakeWriter()
	}
}

// Notify passes lines on to the service manager, as sd_notify(3) has them. The keeper accepts STATUS,
// RELOADING, READY, STOPPING, MONOTONIC_USEC, EXTEND_TIMEOUT_USEC and ERRNO.
func (w *Worker) Notify(state string) { w.tell(appendControl(nil, kindNotify, 0, nil, state)) }

// SetTimes changes times of the keeper's [Config], for this worker and those after it.
func (w *Worker) SetTimes(t Times) error {
	return w.tell(appendControl(nil, kindTimes, 0, t.words()))
}

// Exiting says that this worker is about to exit for good: the keeper does not start another one, and
// exits with its code.
func (w *Worker) Exiting() { w.tell(appendHeader(nil, kindExiting, 0)) }

// Failing says why this worker is about to exit with an exit code other than 0. The reason is part of its
// [Death]: whoever asked for an upgrade is told, and the next worker.
func (w *Worker) Failing(why string) {
	w.tell(appendControl(nil, kindFailing, 0, nil, why))
}

// Restart asks the keeper to replace this worker by a new process of the same binary. The new one is
// started beside this one, which is then asked to hand over, as for an upgrade. While an upgrade is under
// way or on trial, the restart waits for its end.
func (w *Worker) Restart() error {
	return w.tell(appendControl(nil, kindRestart, 0, []uint64{0, 0}, ""))
}

// OnHandOver sets the function that is called, on a goroutine of its own, when the keeper asks this worker to make
// room for another one. It brings what it holds up to date, calls HandedOver, and exits. If it cannot, it calls Stay. One that lingers then is
// asked once more, to end.
// Without a function the worker is killed.
func (w *Worker) OnHandOver(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onHand = f
	if w.handDue && f != nil {
		w.handDue = false
		go f()
	}
}

// HandedOver waits until everything that was queued has been sent to the keeper, and says that this worker has nothing
// more to say. The process exits then, at once; its exit code is not looked at.
func (w *Worker) HandedOver() error { return w.handedOver(0, 0) }

func (w *Worker) handedOver(linger time.Duration, workers int) error {
	err := w.wait(func() bool {
		e := w.out.flush()
		return e != ErrBusy
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.handed = true
	w.mu.Unlock()
	return w.tell(appendControl(nil, kindHandedOver, 0, []uint64{0, uint64(linger), uint64(workers)}))
}

// Stay says that this worker was asked to hand over and cannot, and why. It goes on, and the upgrade is refused. It may be
// asked again later.
func (w *Worker) Stay(why string) error {
	return w.tell(appendControl(nil, kindStaying, 0, nil, why))
}

// Upgrade asks the keeper to replace this worker by a process of another binary. An empty path is that of the
// keeper's configuration. The new process is started beside this one and must call Prepared, which is all
// that happens in a dry run. Then this worker is asked to hand over.
//
// progress, if not nil, is called whenever the upgrade has reached another state. Upgrade returns when the upgrade is over;
// usually this process has ended before, and the next one learns by [Start] and LastUpgrade what
// happened. The error is nil, [ErrLost], or that of ctx.
func (w *Worker) Upgrade(ctx context.Context, binary string, dryRun bool, progress func(Upgrade)) (Upgrade, error) {
	switch {
	case w == nil:
		return Upgrade{}, errNilWorker
	case w.raw == nil: // the zero Worker
		return Upgrade{}, ErrLost
	}
	over := make(chan Upgrade, 1)
	w.mu.Lock()
	w.token++
	token := w.token
	w.watchers[token] = func(u Upgrade) {
		if progress != nil {
			progress(u)
		}
		if u.Over() {
			select {
			case over <- u:
			default:
			}
		}
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.watchers, token)
		w.mu.Unlock()
	}()
	if err := w.tell(appendControl(nil, kindUpgrade, 0, []uint64{token, wordOf(dryRun)}, binary)); err != nil {
		return Upgrade{}, err
	}
	select {
	case u := <-over:
		return u, nil
	case <-w.lost:
		return Upgrade{}, ErrLost
	case <-ctx.Done():
		return Upgrade{}, ctx.Err()
	}
}

// LastUpgrade returns the latest upgrade, which may be under way.
func (w *Worker) LastUpgrade() Upgrade {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upgrade
}

// OnRefused sets the function that is called with the key of each item that the keeper did not take after
// all, because it ran out of descriptors. It is called on a goroutine of this package.
func (w *Worker) OnRefused(f func(key [2]uint64)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onRefused = f
}

// Stats returns the numbers of this connection.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.out.stats()
	s.Refused = w.refused
	return s
}

// Lost returns a channel that is closed when the keeper has gone. The worker works on; nothing is
// held any more. If SIGTERM or SIGINT has ended the keeper while it executed its new binary, when it could not pass
// them on, the process sends SIGTERM to itself.
func (w *Worker) Lost() <-chan struct{} { return w.lost }

// isLost reports whether the keeper has gone. The zero Worker never had one.
func (w *Worker) isLost() bool {
	if w.lost == nil {
		return true
	}
	select {
	case <-w.lost:
		return true
	default:
		return false
	}
}

// tell sends a message, and waits until there is room for it.
func (w *Worker) tell(b []byte) error {
	return w.wait(func() bool { return w.out.send(b, nil) })
}

// wait calls f with the lock until it returns true, whenever there is room in the socket.
func (w *Worker) wait(f func() bool) error {
	switch {
	case w == nil:
		return errNilWorker
	case w.raw == nil: // the zero Worker
		return ErrLost
	}
	err := w.raw.Write(func(uintptr) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return f() || w.out.broken
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.out.broken || w.isLost() {
		return ErrLost
	}
	return nil
}

func (w *Worker) wakeWriter() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// dropAfter is how long drops are collected: a worker that only ends flows calls no Flush.
const dropAfter = 50 * time.Millisecond

// write sends drops, and a sign of life, that did not fit before. Items stay for the next Flush: whoever holds them
// must learn whether they are held.
func (w *Worker) write() {
	for {
		select {
		case <-w.wake:
		case <-w.lost:
			return
		}
		w.wait(w.sendDue)
	}
}

// sendDue sends what did not fit before, and reports whether nothing is left. The caller has the lock.
func (w *Worker) sendDue() bool {
	if w.aliveDue {
		w.aliveDue = !w.out.send(appendHeader(nil, kindAlive, 0), nil)
	}
	w.dropDue = false
	return !w.aliveDue && (!w.going || w.out.flushDrops())
}

// read handles the keeper's messages until there are no more.
func (w *Worker) read() {
	defer func() {
		w.mu.Lock()
		w.out.broken = true // before the descriptor's number may be somebody else's
		close(w.lost)
		stop := w.executing
		w.mu.Unlock()
		w.file.Close()
		if stop { // a signal has ended the keeper, which could not pass it on: see execNow
			sys.Signal(os.Getpid(), syscall.SIGTERM)
		}
	}()
	var fb sys.FDBuffer
	var msg message
	buf := make([]byte, maxMessage)
	fds := make([]int, 0, maxBatchFDs)
	reset := false
	for {
		var n int
		var lost bool
		var errno sys.Errno
		err := w.raw.Read(func(fd uintptr) bool {
			n, fds, lost, errno = fb.Recv(int(fd), buf, fds[:0])
			return errno != sys.EAGAIN && errno != sys.EINTR
		})
		if err == nil && errno == sys.ECONNRESET && !reset { // once, and before what is still to be read: see conn.read
			reset = true
			continue
		}
		if err != nil || errno != 0 || n == 0 {
			w.closeAll(fds)
			return
		}
		if !w.take(&msg, buf[:n], fds, lost) {
			return
		}
	}
}

// take handles one message of the keeper. Its descriptors belong to the worker. It reports whether that is the keeper that we know.
func (w *Worker) take(msg *message, b []byte, fds []int, lost bool) bool {
	if err := msg.parse(b); err != nil || !msg.kind.fromKeeper() || msg.kind != kindItems && msg.kind != kindAnswer && len(fds) > 0 || !lost && len(fds) != msg.descriptors() {
		w.closeAll(fds)
		return false
	}
	w.handle(msg, fds)
	return true
}

func (w *Worker) closeAll(fds []int) {
	for _, fd := range fds {
		w.shut(fd)
	}
}

func (w *Worker) handle(msg *message, fds []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch msg.kind {
	case kindWelcome:
		w.setStart(msg)
	case kindItems:
		got := w.receive(msg, fds)
		w.reply(appendControl(nil, kindGot, msg.seq, []uint64{uint64(got)}))
	case kindPolicyIs:
		for _, s := range msg.texts {
			w.inherited = append(w.inherited, s...)
		}
	case kindAnswer:
		w.answered(msg, fds)
	case kindMark:
		if !closed(w.mark) {
			w.marked = len(w.items)
			close(w.mark)
		}
	case kindBegin:
		for _, item := range w.items {
			if _, ok := w.returned[item.Key]; !ok {
				w.closeAll(item.FDs)
			}
		}
		w.items, w.marked, w.start.Missing, w.begun = nil, 0, 0, true
	case kindGo:
		w.setStart(msg)
		if !w.going {
			w.going = true
			close(w.goOn)
		}
	case kindHandOver:
		switch {
		case w.onHand != nil:
			go w.onHand()
		default:
			w.handDue = true
			w.reply(appendControl(nil, kindHandedOver, 0, []uint64{1}))
		}
	case kindHeld:
		w.out.acknowledged(msg)
	case kindRefused:
		w.refused += uint64(len(msg.keys))
		if f := w.onRefused; f != nil {
			keys := slices.Clone(msg.keys)
			go func() {
				for _, k := range keys {
					f(k)
				}
			}()
		}
	case kindLingering:
		w.setLingering(msg)
	case kindUpgraded:
		if len(msg.words) > 5 { // another keeper may be at the other end now
			w.mayAsk, w.mayLinger = msg.word(5)&featureAsk != 0, msg.word(5)&featureLinger != 0
		}
		w.executing = msg.word(6) != 0
		u := upgradeOf(msg, 1, 0)
		if u.ID != 0 || u.State != Refused {
			w.upgrade, w.start.Upgrade = u, u
		}
		if f := w.watchers[msg.word(0)]; f != nil {
			w.mu.Unlock()
			f(u)
			w.mu.Lock()
		}
	}
}

// reply sends a message that the keeper waits for; it reads all the time.
func (w *Worker) reply(b []byte) {
	if w.out.send(b, nil) {
		return
	}
	w.mu.Unlock()
	defer w.mu.Lock()
	w.tell(b)
}

// startWords is where Start.Starts begins in a message with a Start.
const startWords = 19

func (w *Worker) setStart(msg *message) {
	w.start = Start{
		Reason:   Reason(msg.word(1)),
		Died:     Death{PID: int(msg.word(2)), Code: int(msg.word(3)), Signal: int(msg.word(4)), Why: msg.text(0)},
		Restarts: int(msg.word(6)),
		Total:    int(msg.word(7)),
		FellBack: msg.word(8) != 0,
		Keeper:   os.Getppid(),
		Missing:  w.start.Missing,
		Upgrade:  upgradeOf(msg, 15, 1),
	}
	w.start.Starts = make(map[Reason]int)
	for r := range reasonCount {
		w.start.Starts[Reason(r)] = int(msg.word(startWords + r))
	}
	features := msg.word(startWords + reasonCount)
	w.mayAsk, w.mayLinger = features&featureAsk != 0, features&featureLinger != 0
	w.upgrade = w.start.Upgrade
	w.diedAt = int64(msg.word(5))
	w.out.limits(msg)
}

// upgradeOf reads what Upgrade.words and Upgrade.texts have written.
func upgradeOf(msg *message, word, text int) Upgrade {
	return Upgrade{ID: msg.word(word), State: State(msg.word(word + 1)), DryRun: msg.word(word+2) != 0, Restart: msg.word(word+3) != 0,
		Binary: msg.text(text), Info: msg.text(text + 1), Reason: msg.text(text + 2), Keeper: msg.text(text + 3)}
}

// receive takes over items, and returns how many of them have all their descriptors.
func (w *Worker) receive(msg *message, fds []int) (got int) {
	all := slices.Clone(fds)
	for i := range msg.items {
		item := &msg.items[i]
		own := all[:min(item.fds, len(all)):min(item.fds, len(all))]
		all = all[len(own):]
		_, early := w.returned[item.key]
		if early { // before kindBegin
			w.returned[item.key] = true
		}
		if len(own) < item.fds {
			w.closeAll(own)
			w.items = append(w.items, Item{Key: item.key, Label: item.label})
			w.start.Missing++
			continue
		}
		got++
		if early {
			w.closeAll(own)
			own = nil
		}
		w.items = append(w.items, Item{Key: item.key, Label: item.label, FDs: own})
	}
	w.closeAll(all)
	return got
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
