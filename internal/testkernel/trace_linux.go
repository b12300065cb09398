package testkernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Trace counts the system calls that the event loop of a child process makes, a Go program with one loop of package
// relay: those on sockets, pipes and the loop's epoll instance, and those that make them. What Go's runtime
// and other goroutines do besides is not counted.
//
// From Hold on it also decides when the loop runs. A loop that finds nothing to do is idle: it stops in front
// of the wait in which it would sleep, until Run. So whatever the test does meanwhile is there as a
// whole when the loop goes on, and the same exchange makes the same calls each time. Before Hold the child runs freely.
type Trace struct {
	process *os.Process
	hold    atomic.Bool
	idle    chan struct{} // the loop is in front of a wait
	run     chan struct{}
	ended   chan struct{} // closed: the child has ended
	err     error         // why; set before ended is closed

	mu     sync.Mutex
	counts Calls

	// The tracer's alone, from Hold on.
	loop     int            // the loop's epoll instance
	fds      map[int]fdKind // its sockets, pipes and eventfds
	quiet    bool           // the loop's last wait gave nothing
	threads  map[int]*enteredCall
	stopping int // the idle thread
}

// Calls are the system calls of a while.
type Calls struct {
	By      map[string]int // all of them, by name; waits that gave nothing are "empty-wait"
	Wakeups int            // waits that gave events
	Data    int            // calls that moved bytes or datagrams
	Disturb string         // what else has happened: the counts are not those of the exchange alone
}

// All returns the number of calls.
func (c *Calls) All() (n int) {
	for _, k := range c.By {
		n += k
	}
	return n
}

func (c *Calls) String() string {
	var s []string
	for name, n := range c.By {
		s = append(s, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(s)
	return strings.Join(s, ", ")
}

type fdKind uint8

const (
	socketFD fdKind = iota + 1
	pipeFD
	eventFD
)

// enteredCall is the call that a thread is in.
type enteredCall struct {
	nr   uint64
	args [6]uint64
}

// syscallInfo is struct ptrace_syscall_info, ptrace(2), PTRACE_GET_SYSCALL_INFO.
type syscallInfo struct {
	op   uint8 // 1: entry, 2: exit
	_    [3]byte
	arch uint32
	_    [2]uint64
	nr   uint64 // at an exit: the result
	args [6]uint64
	_    [2]uint64
}

// infoOf asks for the call of a thread that is stopped. Linux 5.3.
func infoOf(tid int) (info syscallInfo, errno syscall.Errno) {
	const getSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO
	_, _, errno = syscall.RawSyscall6(syscall.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	return info, errno
}

// StartTrace starts a child with these descriptors, from 0 on. Where nobody may trace a process, its error is a
// permission error of the system call.
func StartTrace(argv, env []string, files ...*os.File) (*Trace, error) {
	t := &Trace{
		idle: make(chan struct{}, 1), run: make(chan struct{}), ended: make(chan struct{}),
		fds: make(map[int]fdKind), threads: make(map[int]*enteredCall),
	}
	t.counts.By = make(map[string]int)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // a tracer is a thread
		defer runtime.UnlockOSThread()
		var err error
		t.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true}})
		started <- err
		if err == nil {
			t.err = t.trace()
			close(t.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return t, nil
}

// Kill kills the child, and waits until it is gone.
func (t *Trace) Kill() {
	t.process.Kill()
	<-t.ended
	t.process.Release()
}

// Hold begins to count, and to hold the loop whenever it is idle, at first at once. The loop must have its listener, and nothing to do.
func (t *Trace) Hold() error {
	dir := fmt.Sprintf("/proc/%d/", t.process.Pid)
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		return err
	}
	t.loop = -1
	for _, f := range fds {
		fd, _ := strconv.Atoi(f.Name())
		if to, _ := os.Readlink(dir + "fd/" + f.Name()); kindOf(to) != 0 {
			t.fds[fd] = kindOf(to)
		}
	}
	for _, f := range fds {
		fd, _ := strconv.Atoi(f.Name())
		// The runtime's epoll instance watches no socket here. Its descriptors are the lines that begin with tfd: proc(5).
		text, _ := os.ReadFile(dir + "fdinfo/" + f.Name())
		for line := range strings.Lines(string(text)) {
			var watched int
			if _, err := fmt.Sscanf(line, "tfd: %d", &watched); err == nil && t.fds[watched] == socketFD {
				t.loop = fd
			}
		}
	}
	if t.loop < 0 {
		return errors.New("no epoll instance watches a socket")
	}
	t.quiet = true
	t.hold.Store(true)
	// The signal also ends the wait that the loop is in, and it begins the next one.
	// A thread that was made before now has its directory, and runs freely until the signal stops it; one that is made later does not.
	threads, err := os.ReadDir(dir + "task")
	for _, f := range threads {
		tid, _ := strconv.Atoi(f.Name())
		unix.Tgkill(t.process.Pid, tid, unix.SIGSTOP) // its tracer keeps the signal for itself
	}
	return err
}

func kindOf(link string) fdKind {
	switch {
	case strings.HasPrefix(link, "socket:"):
		return socketFD
	case strings.HasPrefix(link, "pipe:"):
		return pipeFD
	case link == "anon_inode:[eventfd]":
		return eventFD
	}
	return 0
}

// Idle waits until the loop is idle.
func (t *Trace) Idle(patience time.Duration) error {
	select {
	case <-t.idle:
		return nil
	case <-t.ended:
		return fmt.Errorf("the child has ended: %w", t.err)
	case <-time.After(patience):
		return errors.New("the loop has not become idle")
	}
}

// Run lets an idle loop go on. Something must be there for it, or it sleeps until something is.
func (t *Trace) Run() {
	select {
	case t.run <- struct{}{}:
	case <-t.ended:
	}
}

// Take returns what was counted since the last Take. The loop must be idle.
func (t *Trace) Take() Calls {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	t.counts = Calls{By: make(map[string]int)}
	return c
}

// trace follows the threads of the child until it has ended. It runs on the thread that has started it.
func (t *Trace) trace() error {
	pid := t.process.Pid
	if _, _, err := wait4(pid, 0); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, exitKill|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	if _, e := infoOf(pid); e != 0 {
		return fmt.Errorf("ptrace: %w", e)
	}
	t.threads[pid] = new(enteredCall)
	t.resume(pid, 0)
	for {
		options := 0
		if t.stopping != 0 {
			options = unix.WNOHANG
		}
		tid, ws, err := wait4(-pid, options) // its process group: this thread may have other children
		switch {
		case err != nil:
			return err
		case tid == 0: // only while the loop is idle
			select {
			case <-t.run:
				t.resume(t.stopping, 0)
				t.stopping = 0
			case <-time.After(50 * time.Microsecond):
			}
		case ws.Exited() || ws.Signaled():
			delete(t.threads, tid)
			if tid == pid {
				return fmt.Errorf("exit code %d, signal %v", ws.ExitStatus(), ws.Signal())
			}
		case ws.Stopped():
			t.stopped(tid, ws.StopSignal())
		}
	}
}

// stopped handles a stop of a thread.
func (t *Trace) stopped(tid int, sig syscall.Signal) {
	call := t.threads[tid]
	if call == nil {
		call = new(enteredCall)
		t.threads[tid] = call
	}
	switch sig {
	case syscall.SIGTRAP | 0x80:
		if t.call(call, tid) {
			t.stopping = tid
			t.idle <- struct{}{}
			return
		}
		sig = 0
	case syscall.SIGTRAP, syscall.SIGSTOP: // it has made a thread; it is a new one; Hold
		sig = 0
	}
	t.resume(tid, sig)
}

// call handles the beginning or the end of a system call. It reports whether the loop is idle now.
func (t *Trace) call(c *enteredCall, tid int) (idle bool) {
	info, e := infoOf(tid)
	if e != 0 {
		return false // it was killed
	}
	if info.op == 1 {
		c.nr, c.args = info.nr, info.args
		return c.nr == unix.SYS_EPOLL_PWAIT && int(c.args[0]) == t.loop && int32(c.args[3]) != 0 && t.quiet
	}
	if info.op == 2 {
		t.done(c, int64(info.nr))
	}
	return false
}

var callsOf = map[uint64]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev", unix.SYS_CLOSE: "close", unix.SYS_IOCTL: "ioctl", unix.SYS_FCNTL: "fcntl",
	unix.SYS_SPLICE: "splice", unix.SYS_TEE: "tee", unix.SYS_VMSPLICE: "vmsplice", unix.SYS_SENDFILE: "sendfile", unix.SYS_PIPE2: "pipe2",
	unix.SYS_SOCKET: "socket", unix.SYS_SOCKETPAIR: "socketpair", unix.SYS_ACCEPT4: "accept4", unix.SYS_BIND: "bind", unix.SYS_LISTEN: "listen",
	unix.SYS_CONNECT: "connect", unix.SYS_SHUTDOWN: "shutdown", unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_GETSOCKOPT: "getsockopt",
	unix.SYS_GETSOCKNAME: "getsockname", unix.SYS_GETPEERNAME: "getpeername", unix.SYS_RECVFROM: "recvfrom", unix.SYS_SENDTO: "sendto",
	unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDMSG: "sendmsg", unix.SYS_RECVMMSG: "recvmmsg", unix.SYS_SENDMMSG: "sendmmsg",
	unix.SYS_EPOLL_CTL: "epoll_ctl", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_PPOLL: "ppoll", unix.SYS_DUP: "dup", unix.SYS_DUP3: "dup3",
}

// moves are the calls whose result is a number of bytes or datagrams.
var moves = []uint64{unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_VMSPLICE, unix.SYS_SENDFILE,
	unix.SYS_RECVFROM, unix.SYS_SENDTO, unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_RECVMMSG, unix.SYS_SENDMMSG}

// done counts a call that has returned.
func (t *Trace) done(c *enteredCall, result int64) {
	name := callsOf[c.nr]
	fd := int(int32(c.args[0]))
	switch c.nr {
	case unix.SYS_SOCKET, unix.SYS_ACCEPT4:
		if result >= 0 {
			t.fds[int(result)] = socketFD
		}
	case unix.SYS_PIPE2:
		t.pipe(c.args[0])
	}
	if name == "" || !t.counted(c, fd) {
		return
	}
	if result == -int64(syscall.EPERM) {
		return // what is tried with privileges first, and done without: the same count for every user
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch c.nr {
	case unix.SYS_CLOSE:
		delete(t.fds, fd)
	case unix.SYS_EPOLL_PWAIT:
		t.quiet = result <= 0
		if result > 0 {
			t.counts.Wakeups++
		}
		if result == 0 {
			name = "empty-wait"
		}
	}
	if result == -int64(syscall.EINTR) || result <= -512 && result >= -516 { // ERESTARTSYS and the like, include/linux/errno.h
		t.counts.Disturb = name + " was interrupted"
	}
	if t.fds[fd] == eventFD {
		t.counts.Disturb = "another goroutine has asked the loop for something"
	}
	t.counts.By[name]++
	if result > 0 && slices.Contains(moves, c.nr) {
		t.counts.Data++
	}
}

// counted reports whether a call is one of the loop's.
func (t *Trace) counted(c *enteredCall, fd int) bool {
	switch c.nr {
	case unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_PIPE2:
		return true
	case unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT:
		return fd == t.loop
	}
	return t.fds[fd] != 0
}

// pipe notes the two descriptors of a pipe, which lie in the child's memory.
func (t *Trace) pipe(at uint64) {
	var b [8]byte
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", t.process.Pid))
	if err != nil {
		return
	}
	defer f.Close()
	if n, _ := f.ReadAt(b[:], int64(at)); n == len(b) {
		r, w := binary.NativeEndian.Uint32(b[:]), binary.NativeEndian.Uint32(b[4:])
		t.fds[int(r)], t.fds[int(w)] = pipeFD, pipeFD
	}
}

// resume lets a thread run: up to the beginning or end of its next call, once there is something to count.
func (t *Trace) resume(tid int, sig syscall.Signal) {
	if t.hold.Load() {
		syscall.PtraceSyscall(tid, int(sig))
	} else {
		syscall.PtraceCont(tid, int(sig))
	}
}

// wait4 waits for a stop of a child, or of a thread of one.
func wait4(pid, options int) (int, syscall.WaitStatus, error) {
	for {
		var ws syscall.WaitStatus
		tid, err := syscall.Wait4(pid, &ws, options|syscall.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			err = fmt.Errorf("wait4: %w", err)
		}
		return tid, ws, err
	}
}
