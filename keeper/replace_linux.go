package keeper

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// The keeper is replaced in three steps. The new binary is started as a child and asked whether it
// reads this state (Run answers, in answerAsked). The readers stop between two messages. Then the keeper executes the
// binary: same process, same descriptors, same children; the worker notices nothing.

// answer is what a binary said about the state.
type answer struct {
	binary *executable
	no     string // why not, or empty
}

// askTimeout bounds how long a binary may take to answer.
const askTimeout = 10 * time.Second

// replace implements port.
func (r *runner) replace(b *executable) {
	if r.replacing != nil || r.askPID.Load() != 0 {
		return
	}
	memfd, err := r.saveState()
	if err != nil {
		r.m.notReplaced(b, err.Error())
		return
	}
	defer sys.Linux{}.Close(memfd)
	in, out, err := os.Pipe()
	if err != nil {
		r.m.notReplaced(b, err.Error())
		return
	}
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		in.Close()
		r.m.notReplaced(b, err.Error())
		return
	}
	defer null.Close()
	no := int(null.Fd())
	pid, e := startProgram(b, os.Args, append(os.Environ(), askEnv+"=3,4"), "", []int{no, no, 2, memfd, int(out.Fd())})
	if e != 0 {
		in.Close()
		r.m.notReplaced(b, e.Error())
		return
	}
	r.askPID.Store(int64(pid))
	go func() {
		in.SetReadDeadline(time.Now().Add(askTimeout))
		text, err := io.ReadAll(io.LimitReader(in, 1024))
		in.Close()
		sys.Signal(pid, syscall.SIGKILL)
		sys.WaitExit(pid)
		sys.Reap(pid)
		r.askPID.Store(0)
		a := answer{binary: b}
		switch {
		case string(text) == answerYes:
		case len(text) > 0:
			a.no = strings.TrimSpace(string(text))
		case err != nil:
			a.no = "it does not say whether it reads this keeper's state"
		default:
			a.no = "it does not know how to replace a keeper"
		}
		r.answers <- a
	}()
}

const answerYes = "yes\n"

// answerAsked answers if this process was started to be asked.
func answerAsked() (exitCode int, ok bool) {
	text, ok := os.LookupEnv(askEnv)
	if !ok {
		return 0, false
	}
	os.Unsetenv(askEnv)
	var memfd, out int
	if _, err := fmt.Sscanf(text, "%d,%d", &memfd, &out); err != nil {
		return 1, true
	}
	f := os.NewFile(uintptr(out), "answer")
	defer f.Close()
	_, err := loadState(memfd, Config{}.withDefaults(), 0)
	if err != nil {
		f.WriteString(err.Error() + "\n")
		return 1, true
	}
	f.WriteString(answerYes)
	return 0, true
}

func (r *runner) onAnswer(a answer) {
	switch {
	case a.no != "":
		r.m.notReplaced(a.binary, a.no)
	case r.m.standby != nil || !r.m.upgrade.Over() || r.m.active == nil || !r.m.active.ready || r.m.stopping:
		r.m.notReplaced(a.binary, "something else had to be done meanwhile")
	default:
		r.replacing = a.binary
		for _, c := range r.conns {
			c.beginPause()
			r.pausing++
		}
	}
}

// tryExecute replaces the program of this process when all readers have paused. While signals wait it does nothing:
// they come first, and the caller tries again. A signal may have started another worker meanwhile, whose reader was
// never asked to pause.
func (r *runner) tryExecute(signals chan os.Signal) {
	if r.replacing == nil || r.pausing > 0 || len(signals)+len(r.stops) > 0 || r.execNow(signals) {
		return
	}
	// It failed, or there is no reason any more.
	r.replacing = nil
	for _, c := range r.conns {
		if c.pause == paused {
			c.resume()
		}
	}
}

// execNow reports whether to try again. It returns only if the program was not replaced.
func (r *runner) execNow(signals chan os.Signal) (again bool) {
	b := r.replacing
	m := r.m
	if m.active == nil || m.standby != nil || m.finished || m.stopping {
		m.notReplaced(b, "something else had to be done meanwhile")
		return false
	}
	if len(m.active.pending) > 0 { // the broker ends with this program; each answer comes within Config.AskTimeout
		return true
	}
	if len(m.active.partial) > 0 {
		m.notReplaced(b, "the worker is setting its policy")
		return false
	}
	if len(m.active.out) > 0 {
		m.notReplaced(b, "the worker does not read its messages")
		return false
	}
	r.closer.wait()
	m.executing = true
	m.tellUpgrade()
	if len(m.active.out) > 0 {
		m.notReplaced(b, "the worker does not read its messages")
		return false
	}
	before := m.upgrade.Keeper
	m.upgrade.Keeper = "upgraded"
	memfd, err := r.saveState()
	if err != nil {
		m.notReplaced(b, err.Error())
		return false
	}
	defer sys.Linux{}.Close(memfd)
	r.setCloseOnExec(memfd, false)
	defer r.setCloseOnExec(memfd, true)
	// Go's runtime unblocks SIGTERM, SIGINT and SIGHUP when a program starts, before it has handlers (blockableSig in
	// runtime/signal_unix.go), and they end it until signal.Notify. From here on the first two end the program before, too, so that each
	// of them was either received or ends this process, which is what the worker takes for SIGTERM. A SIGHUP is ignored, and lost.
	signal.Ignore(syscall.SIGHUP)
	signal.Stop(r.stops)
	defer r.takeStops()
	defer signal.Notify(signals, syscall.SIGHUP)
	if len(signals)+len(r.stops) > 0 { // what they change is not in the saved state
		m.executing = false
		m.upgrade.Keeper = before
		m.tellUpgrade()
		return true
	}
	e := sys.Execute("/proc/self/fd/"+strconv.Itoa(b.fd), os.Args, append(os.Environ(), stateEnv+"="+strconv.Itoa(memfd)))
	m.notReplaced(b, e.Error())
	return false
}

// setCloseOnExec sets or clears FD_CLOEXEC of everything that the next program needs.
func (r *runner) setCloseOnExec(memfd int, on bool) {
	sys.SetCloseOnExec(memfd, on)
	for _, c := range r.conns {
		sys.SetCloseOnExec(c.fd, on)
	}
	for _, b := range r.m.opened {
		sys.SetCloseOnExec(b.fd, on)
	}
	for _, f := range r.cfg.Inherit {
		sys.SetCloseOnExec(int(f.Fd()), on)
	}
	r.m.table.each(func(_ [2]uint64, _ string, fds []int) {
		for _, fd := range fds {
			sys.SetCloseOnExec(fd, on)
		}
	})
}

func (r *runner) saveState() (memfd int, err error) {
	conns := make(map[int]savedConn)
	for id, c := range r.conns {
		conns[id] = savedConn{c.fd, c.pid}
	}
	b := r.m.save(conns)
	memfd, e := sys.Memfd("keeper", int64(len(b)))
	if e != 0 {
		return -1, os.NewSyscallError("memfd_create", e)
	}
	mem, e := sys.Map(memfd, int64(len(b)))
	if e != 0 {
		sys.Linux{}.Close(memfd)
		return -1, os.NewSyscallError("mmap", e)
	}
	copy(mem, b)
	sys.Unmap(mem)
	return memfd, nil
}

func loadState(memfd int, cfg Config, limit int) (*state, error) {
	size, e := sys.SealedSize(memfd)
	if e != 0 {
		return nil, errState
	}
	mem, e := sys.Map(memfd, size)
	if e != 0 {
		return nil, os.NewSyscallError("mmap", e)
	}
	defer sys.Unmap(mem)
	return load(mem, cfg, limit, time.Now())
}

// nameProcess names this process and all of its threads after its first argument, unless it has named itself:
// then its threads get that name. It was executed by the number of a descriptor, which became its name.
// proc_pid_comm(5).
func nameProcess() {
	now, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return
	}
	name := strings.TrimSpace(string(now))
	if _, no := strconv.Atoi(name); no == nil && len(os.Args) > 0 {
		name = filepath.Base(os.Args[0])
	}
	nameThreads(name)
}

// restore goes on with the state of the program that this one has replaced, if there is one.
func (r *runner) restore(now time.Time) (bool, error) {
	text, ok := os.LookupEnv(stateEnv)
	if !ok {
		return false, nil
	}
	os.Unsetenv(stateEnv)
	memfd, err := strconv.Atoi(text)
	if err != nil {
		return false, errState
	}
	defer sys.Linux{}.Close(memfd)
	s, err := loadState(memfd, r.cfg, r.m.limit)
	if err != nil {
		return false, err
	}
	r.m = s.m
	r.m.port = r
	for id, saved := range s.conns {
		c, err := newConn(id, saved.pid, saved.fd, -1, r.events)
		if err != nil {
			return false, err
		}
		r.conns[id] = c
		r.lastID = max(r.lastID, id)
	}
	r.setCloseOnExec(memfd, true)
	for _, c := range r.conns {
		go c.watch()
		go c.read()
	}
	nameProcess()
	r.m.replaced(now)
	return true, nil
}
