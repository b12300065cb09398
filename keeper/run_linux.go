package keeper

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// The environment variables by which this package finds what its own process had before, or its parent has
// prepared. Each has descriptor numbers, and is taken out of the environment when it is read.
const (
	workerEnv = "PENSTOCK_KEEPER"        // for a worker: its end of the connection
	outputEnv = "PENSTOCK_KEEPER_OUTPUT" // for a worker whose output is memory: the first of two that it is to have instead
	stateEnv  = "PENSTOCK_KEEPER_STATE"  // for a keeper that was executed in place: a memfd
	askEnv    = "PENSTOCK_KEEPER_ASK"    // for a keeper that is to say whether it reads this state: memfd, pipe
)

// reserve is how many descriptors the keeper leaves free for itself: for one full message that is on its way
// to being refused, binaries, and the runtime.
const reserve = 320

// gcPercent is the keeper's GOGC, if the environment has none.
const gcPercent = 20

// runner makes the system calls of a keeper.
type runner struct {
	cfg    Config
	own    string // path of this program
	m      *machine
	conns  map[int]*conn
	lastID int
	score  int // oom_score_adj of the worker that has ended last
	events chan event
	sender sys.FDBuffer
	closer closer

	trimmer trimmer

	brokered chan brokered
	over     chan struct{} // closed when nobody reads brokered any more
	requests []request     // that no goroutine of the broker has begun
	brokers  int           // goroutines that are at work

	stops     chan os.Signal // SIGTERM and SIGINT
	answers   chan answer
	replacing *executable // the readers pause for it
	pausing   int         // readers that have not paused yet
	askPID    atomic.Int64
}

// Run is the keeper: it starts a worker and holds its descriptors until a worker has ended as planned.
// It returns the exit code for the process: that of the worker, or 128 and the number of the signal that
// ended it. An error says why nothing could be started.
//
// A worker ends as planned if it has called [Worker.Exiting], or if the keeper has received SIGTERM or SIGINT; and the
// first worker if it exits before it was ready.
//
// Run takes over the signals of the process: SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on to the worker, and
// SIGUSR2 is an upgrade to the file that is now at the path of [Config.Binary]. It is called once in a process.
func Run(cfg Config) (exitCode int, err error) {
	if code, ok := answerAsked(); ok {
		return code, nil
	}
	r := &runner{cfg: cfg.withDefaults(), conns: make(map[int]*conn), events: make(chan event), stops: make(chan os.Signal, 64), answers: make(chan answer, 1), brokered: make(chan brokered), over: make(chan struct{})}
	if r.own, err = os.Executable(); err != nil {
		return 1, fmt.Errorf("keeper: find the program: %w", err)
	}
	limit := sys.DescriptorLimit()
	limit -= min(reserve, limit/2) + len(cfg.Inherit)
	r.m = newMachine(r.cfg, limit, r)

	signals := make(chan os.Signal, 64)
	take := []os.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
	if os.Getpid() == 1 {
		take = append(take, syscall.SIGCHLD)
	}
	r.closer.start()
	defer r.closer.stop()

	// Before restore, which tells that the keeper was replaced: who has read that may send a signal.
	r.takeStops()
	defer signal.Stop(r.stops)
	signal.Notify(signals, take...)
	defer signal.Stop(signals)
	// The keeper allocates next to nothing while it works, and has a small heap.
	if _, ok := os.LookupEnv("GOGC"); !ok {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	nameProcess()

	now := time.Now()
	restored, err := r.restore(now)
	if err != nil {
		return 1, fmt.Errorf("keeper: %w", err)
	}
	if !restored {
		if err := r.m.begin(now); err != nil {
			return 1, fmt.Errorf("keeper: start %s: %w", r.path(""), err)
		}
	}
	r.loop(signals)
	close(r.over)
	r.end()
	return r.m.exitCode, nil
}

func (r *runner) takeStops() { signal.Notify(r.stops, syscall.SIGTERM, syscall.SIGINT) }

func (r *runner) loop(signals chan os.Signal) {
	m := r.m
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !m.over() {
		r.trimmer.plan(m, time.Now())
		at := m.next()
		if trimAt := r.trimmer.at; at.IsZero() || !trimAt.IsZero() && trimAt.Before(at) {
			at = trimAt
		}
		if at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case e := <-r.events:
			r.onEvent(e)
		case s := <-r.stops:
			m.signal(s.(syscall.Signal), time.Now())
		case s := <-signals:
			if s == syscall.SIGCHLD {
				sys.ReapOthers(r.isOwn)
				continue
			}
			m.signal(s.(syscall.Signal), time.Now())
		case a := <-r.answers:
			r.onAnswer(a)
		case b := <-r.brokered:
			r.onBrokered(b)
		case <-timer.C:
			now := time.Now()
			m.tick(now)
			if r.trimmer.due(m, now) {
				trim()
			}
		}
		r.tryExecute(signals)
	}
}

func (r *runner) onEvent(e event) {
	now := time.Now()
	switch e.what {
	case gotMessage:
		e.from.closeOutput() // it has taken the keeper's
		r.m.handle(e.id, e.msg, e.fds, e.lost, now)
		e.from.next <- struct{}{}
	case hungUp:
		r.m.hungUp(e.id, now)
	case wasWritable:
		r.m.writable(e.id, now)
	case wasPaused:
		r.pausing--
		e.from.pause = paused
	case wasGone:
		c := e.from
		if c.pause == pausing {
			r.pausing--
		}
		delete(r.conns, c.id)
		c.file.Close()
		r.score = oomScore(c.pid)
		var d Death
		d.Code, d.Signal, _ = sys.Reap(c.pid)
		wrote := c.wrote()
		c.closeOutput()
		r.m.gone(c.id, d, wrote, now)
		if os.Getpid() == 1 {
			sys.ReapOthers(r.isOwn)
		}
	}
}

func (r *runner) isOwn(pid int) bool {
	if int64(pid) == r.askPID.Load() {
		return true
	}
	for _, c := range r.conns {
		if c.pid == pid {
			return true
		}
	}
	return false
}

// end ends what is left when the machine has finished.
func (r *runner) end() {
	r.m.abort()
	patience := time.After(5 * time.Second)
	for len(r.conns) > 0 {
		select {
		case e := <-r.events:
			switch e.what {
			case gotMessage:
				r.close(e.fds)
				e.from.next <- struct{}{}
			case wasGone:
				delete(r.conns, e.id)
				e.from.file.Close()
				sys.Reap(e.from.pid)
			}
		case <-patience:
			return
		}
	}
	r.m.table.each(func(_ [2]uint64, _ string, fds []int) { r.close(fds) })
	for _, b := range r.m.opened {
		r.release(b)
	}
}

// start implements port.
func (r *runner) start(b *executable, apart bool) (id, pid int, err error) {
	out := -1
	if apart {
		if out, err = newOutput(); err != nil {
			return 0, 0, fmt.Errorf("start a worker: %w", err)
		}
		defer func() {
			if err != nil {
				sys.Linux{}.Close(out)
			}
		}()
	}
	ours, theirs, e := sys.Pair()
	if e != 0 {
		return 0, 0, fmt.Errorf("connect a worker: %w", os.NewSyscallError("socketpair", e))
	}
	defer sys.Linux{}.Close(theirs)
	files := []int{0, 1, 2}
	if apart {
		files = []int{0, out, out}
	}
	for _, f := range r.cfg.Inherit {
		files = append(files, int(f.Fd()))
	}
	number := len(files)
	files = append(files, theirs)
	env := r.cfg.Env
	if env == nil {
		env = os.Environ()
	}
	env = append(env[:len(env):len(env)], workerEnv+"="+strconv.Itoa(number))
	if apart {
		env = append(env, outputEnv+"="+strconv.Itoa(len(files)))
		files = append(files, 1, 2)
	}
	args := r.cfg.Args
	if args == nil {
		args = os.Args
	}
	pid, e = startProgram(b, args, env, r.cfg.Dir, files)
	if e != 0 {
		sys.Linux{}.Close(ours)
		err = &os.PathError{Op: "execute", Path: b.path, Err: e}
		if e == sys.ENOEXEC {
			err = fmt.Errorf("%w; it is not a program for %s/%s", err, runtime.GOOS, runtime.GOARCH)
		}
		return 0, 0, fmt.Errorf("start a worker: %w", err)
	}
	r.preferVictim(pid)
	r.lastID++
	c, err := newConn(r.lastID, pid, ours, out, r.events)
	if err != nil { // the runtime has no room for it
		sys.Signal(pid, syscall.SIGKILL)
		go func() { sys.WaitExit(pid); sys.Reap(pid) }()
		return 0, 0, fmt.Errorf("start a worker: %w", err)
	}
	r.conns[c.id] = c
	go c.watch()
	go c.read()
	return c.id, pid, nil
}

// startProgram executes a binary by its descriptor, so that it does not matter what is at its path by now.
func startProgram(b *executable, args, env []string, dir string, files []int) (pid int, e sys.Errno) {
	pid, e = sys.StartProgram(b.fd, args, env, dir, files)
	if e == sys.ENOENT { // no /proc
		pid, e = sys.StartProcess(b.path, args, env, dir, files)
	}
	return pid, e
}

// preferVictim makes the kernel prefer a worker that was just started to the keeper when memory runs out: the keeper can start
// another one. A worker that knows of a limit may have raised its score further, and then the next one has that from its
// start on: it has few pages of its own by then, and the flows of the one before it. proc_pid_oom_score_adj(5).
func (r *runner) preferVictim(pid int) {
	score := max(r.score, min(oomScore(os.Getpid())+100, 1000))
	for _, c := range r.conns {
		score = max(score, oomScore(c.pid))
	}
	os.WriteFile(oomScorePath(pid), []byte(strconv.Itoa(score)), 0)
}

func oomScorePath(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/oom_score_adj" }

// oomScore returns what a process has there; 0 if that is not known.
func oomScore(pid int) (n int) {
	if b, err := os.ReadFile(oomScorePath(pid)); err == nil {
		n, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	return n
}

// send implements port.
func (r *runner) send(id int, p []byte, fds []int) sent {
	c := r.conns[id]
	if c == nil {
		return sentLost
	}
	result := resultOf(r.sender.Send(c.fd, p, fds))
	if result == sentFull {
		go c.waitWritable()
	}
	return result
}

// resultOf returns what an error of a send means.
func resultOf(e sys.Errno) sent {
	switch e {
	case 0:
		return sentAll
	case sys.EAGAIN, sys.ENOBUFS, sys.ENOMEM:
		return sentFull
	case sys.ETOOMANYREFS:
		return sentMany
	}
	return sentLost
}

// signal implements port.
func (r *runner) signal(id int, s syscall.Signal) {
	if c := r.conns[id]; c != nil {
		sys.Signal(c.pid, s)
	}
}

// close implements port.
func (r *runner) close(fds []int) { r.closer.close(fds) }

// closing implements port.
func (r *runner) closing() int { return int(r.closer.open.Load()) }

func (r *runner) path(path string) string {
	if path == "" {
		path = r.cfg.Binary
	}
	if path == "" {
		path = r.own
	}
	return path
}

// open implements port.
func (r *runner) open(path string) (*executable, error) {
	path = r.path(path)
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	from := path
	if path == r.own && r.m.current == nil {
		from = "/proc/self/exe" // the program that runs, not what is there by now
	}
	fd, e := sys.OpenProgram(from)
	if e != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: e}
	}
	return &executable{fd: fd, path: path}, nil
}

// release implements port.
func (r *runner) release(b *executable) { sys.Linux{}.Close(b.fd) }

// closer closes descriptors on a goroutine of its own. It may have to wait: a worker can set SO_LINGER.
type closer struct {
	mu   sync.Mutex
	fds  []int
	wake chan struct{}
	done chan struct{}
	open atomic.Int64
}

func (c *closer) start() {
	c.wake, c.done = make(chan struct{}, 1), make(chan struct{})
	go c.run()
}

func (c *closer) close(fds []int) {
	if len(fds) == 0 {
		return
	}
	c.open.Add(int64(len(fds)))
	c.mu.Lock()
	c.fds = append(c.fds, fds...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *closer) run() {
	defer close(c.done)
	var mine []int
	for range c.wake {
		c.mu.Lock()
		mine, c.fds = c.fds, mine[:0]
		c.mu.Unlock()
		for _, fd := range mine {
			sys.CloseMayWait(fd)
			c.open.Add(-1)
		}
	}
}

// wait waits until everything that was given to close so far is closed, but not forever.
func (c *closer) wait() {
	for end := time.Now().Add(time.Second); c.open.Load() > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
}

// stop waits until everything is closed, but not forever.
func (c *closer) stop() {
	close(c.wake)
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
	}
}
