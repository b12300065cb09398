//go:build linux

package proc

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a relay that runs, or another program. What it prints goes to the file output in its folder, so that nobody has to
// read for it to go on.
type Process struct {
	Argv []string
	Env  []string // besides that of this process
	Dir  string
	Attr syscall.SysProcAttr
	Out  *os.File // gets what it prints instead; nil: the file does
	// Start starts the command elsewhere, such as in another namespace; nil: here.
	Start func(*exec.Cmd) error
	// Main returns its first process, for a program that goes to the background; nil: the one that was started.
	Main func(started int) int
	// All returns all processes of a program whose old ones linger and are not children of the first; nil: it has none of these.
	All func() []int
	// Again says that it is started again when it has ended by itself, as a service manager does, after so long.
	Again bool
	After time.Duration
	// Ended, if not nil, is called when it has ended by itself.
	Ended func(error)

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	begun   int
	err     error
	done    chan struct{} // closed when it has ended, and is not started again
}

// started are the processes that have not ended.
var started struct {
	mu  sync.Mutex
	all map[*Process]bool
}

// EndAll kills whatever is running of what was started.
func EndAll() {
	started.mu.Lock()
	all := slices.Collect(maps.Keys(started.all))
	started.mu.Unlock()
	for _, p := range all {
		p.Kill()
	}
}

// Begin starts it.
func (p *Process) Begin() error {
	p.mu.Lock()
	p.done, p.stopped = make(chan struct{}), false
	p.mu.Unlock()
	started.mu.Lock()
	if started.all == nil {
		started.all = map[*Process]bool{}
	}
	started.all[p] = true
	started.mu.Unlock()
	err := p.begin()
	if err != nil {
		p.over(err)
	}
	return err
}

func (p *Process) begin() error {
	out := p.Out
	if out == nil {
		var err error
		if out, err = os.OpenFile(filepath.Join(p.Dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return err
		}
		defer out.Close()
	}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.Env...)
	attr := p.Attr
	cmd.SysProcAttr = &attr
	start := p.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return os.ErrProcessDone
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(p.Argv[0]), err)
	}
	p.cmd = cmd
	p.begun++
	go p.wait(cmd)
	return nil
}

// wait waits for the end, and starts it again if it should be.
func (p *Process) wait(cmd *exec.Cmd) {
	err := cmd.Wait()
	for p.First() != 0 { // in the background
		time.Sleep(time.Millisecond)
	}
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if !stopped {
		if p.Ended != nil {
			p.Ended(err)
		}
		if p.Again {
			time.Sleep(p.After)
			if err = p.begin(); err == nil {
				return
			}
		}
	}
	p.over(err)
}

func (p *Process) over(err error) {
	p.err = err
	started.mu.Lock()
	delete(started.all, p)
	started.mu.Unlock()
	close(p.done)
}

// First returns its first process; 0: none runs.
func (p *Process) First() int {
	p.mu.Lock()
	pid := 0
	if p.cmd != nil {
		pid = p.cmd.Process.Pid
	}
	p.mu.Unlock()
	if p.Main != nil {
		pid = p.Main(pid)
	}
	if pid == 0 || !Alive(pid) {
		return 0
	}
	return pid
}

// Begun returns how often it was started.
func (p *Process) Begun() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// Workers returns the processes that carry traffic: the children of the first one, or that one alone.
func (p *Process) Workers() []int {
	main := p.First()
	if main == 0 {
		return nil
	}
	tree := slices.DeleteFunc(Tree(main), func(pid int) bool { return !Alive(pid) })
	if len(tree) > 1 {
		return tree[1:]
	}
	return tree
}

// Signal sends a signal to all processes that carry traffic, and returns how many they are.
func (p *Process) Signal(sig syscall.Signal) int {
	all := p.Workers()
	for _, pid := range all {
		syscall.Kill(pid, sig)
	}
	return len(all)
}

// Over reports whether it has ended for good.
func (p *Process) Over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Failed returns an error if it has ended for good.
func (p *Process) Failed() error {
	if p.Over() {
		return fmt.Errorf("%s ended: %v", filepath.Base(p.Argv[0]), p.err)
	}
	return nil
}

// Stop asks the process to end, and kills what is left of it after patience. It returns the exit code, and whether it was killed.
func (p *Process) Stop(patience time.Duration) (code int, killed bool) {
	p.stopping()
	if pid := p.First(); pid != 0 {
		syscall.Kill(pid, syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		killed = true
	}
	p.Kill()
	return p.cmd.ProcessState.ExitCode(), killed
}

// Kill ends it and all its processes at once, also those that linger.
func (p *Process) Kill() {
	if p.done == nil {
		return // it was never started
	}
	p.stopping()
	all := map[int]bool{} // also those that lose their parent meanwhile
	for ; ; time.Sleep(2 * time.Millisecond) {
		for _, pid := range p.Tree() {
			all[pid] = true
		}
		maps.DeleteFunc(all, func(pid int, _ bool) bool { return !Alive(pid) })
		if p.Over() && len(all) == 0 {
			return
		}
		for pid := range all {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// stopping keeps it from being started again.
func (p *Process) stopping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// Tree returns all its processes.
func (p *Process) Tree() []int {
	if p.All != nil {
		return slices.DeleteFunc(p.All(), func(pid int) bool { return !Alive(pid) })
	}
	if main := p.First(); main != 0 {
		return Tree(main)
	}
	return nil
}

// Printed returns the end of what it has printed, and of its log of errors.
func (p *Process) Printed() string {
	var all string
	for _, name := range []string{"output", "error.log"} {
		b, _ := os.ReadFile(filepath.Join(p.Dir, name))
		all += string(b[max(0, len(b)-2000):])
	}
	return strings.TrimSpace(all)
}

// Alive reports whether a process runs: it exists, and is not a zombie.
func Alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := strings.LastIndex(string(text), ") ")
	return i >= 0 && text[i+2] != 'Z' && text[i+2] != 'X'
}

// WaitDead waits until the process of a pidfd has ended.
func WaitDead(fd int, patience time.Duration) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n == 1 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return err
		}
	}
	return fmt.Errorf("it is alive after %v", patience)
}

// Children returns the processes below a process.
func Children(pid int) []int { return Tree(pid)[1:] }

// ReadPID returns the process that a file names; 0 if there is none.
func ReadPID(file string) int {
	text, _ := os.ReadFile(file)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// Wait waits until a condition holds.
func Wait(what string, patience time.Duration, holds func() bool) error {
	return Until(what, patience, 2*time.Millisecond, func() error {
		if !holds() {
			return os.ErrDeadlineExceeded
		}
		return nil
	})
}

// Until calls a function every so often until it returns no error.
func Until(what string, patience, every time.Duration, try func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(every) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not after %v: %w", what, patience, err)
		}
	}
}

// Renew sends a signal to a master until it has a worker that it did not have: a master of HAProxy loses a signal that comes while it
// executes itself. With once, it is sent only once.
func Renew(main int, sig syscall.Signal, once bool, patience time.Duration) error {
	before, last := Children(main), time.Time{}
	return Wait("a new worker", patience, func() bool {
		if HasNew(main, before) {
			return true
		}
		if last.IsZero() || !once && time.Since(last) > 300*time.Millisecond {
			syscall.Kill(main, sig)
			last = time.Now()
		}
		return false
	})
}

// HasNew reports whether a process has a child that it had not before. The number of a new one may be lower: they wrap (proc_sys_kernel(5), pid_max).
func HasNew(main int, before []int) bool {
	return slices.ContainsFunc(Children(main), func(pid int) bool { return !slices.Contains(before, pid) })
}
