package testkernel

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// Stepper runs the first thread of a child process one instruction at a time; its other threads run freely. The
// child stops at each runtime.Breakpoint of its first thread, which is that of the function main if package
// initialisation has called runtime.LockOSThread. All calls must come from the same locked thread.
type Stepper struct {
	process *os.Process
	pid     int
}

// StartStepper starts a child with these descriptors, from 0 on, which stops in front of its first instruction. Where
// nobody may trace a process, its error is a permission error of the system call.
func StartStepper(argv, env []string, files ...*os.File) (*Stepper, error) {
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return nil, err
	}
	s := &Stepper{process: p, pid: p.Pid}
	_, err = s.wait()
	if err == nil {
		err = syscall.PtraceSetOptions(s.pid, exitKill)
	}
	if err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// exitKill is PTRACE_O_EXITKILL: the child does not outlive its tracer.
const exitKill = 1 << 20

// wait waits for the next stop, and returns the signal that the child would get.
func (s *Stepper) wait() (syscall.Signal, error) {
	var ws syscall.WaitStatus
	for {
		// Go's scheduler is not told that this may take a moment: that would take longer than the step.
		_, _, e := syscall.RawSyscall6(syscall.SYS_WAIT4, uintptr(s.pid), uintptr(unsafe.Pointer(&ws)), syscall.WALL, 0, 0, 0)
		switch {
		case e == syscall.EINTR:
		case e != 0:
			return 0, fmt.Errorf("wait4: %w", e)
		case !ws.Stopped():
			return 0, fmt.Errorf("the child has ended: %#x", uint32(ws))
		default:
			return ws.StopSignal(), nil
		}
	}
}

// Continue lets the child run until it stops at a breakpoint. Signals reach it as usual.
func (s *Stepper) Continue() error {
	for sig := syscall.Signal(0); ; {
		if err := syscall.PtraceCont(s.pid, int(sig)); err != nil {
			return fmt.Errorf("ptrace: %w", err)
		}
		var err error
		if sig, err = s.wait(); err != nil || sig == syscall.SIGTRAP {
			return err
		}
	}
}

// Step lets the child execute one instruction. A signal that comes meanwhile is lost: only those of Go's
// scheduler are expected, which repeats them.
func (s *Stepper) Step() error {
	if err := syscall.PtraceSingleStep(s.pid); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	sig, err := s.wait()
	if err == nil && sig != syscall.SIGTRAP && sig != syscall.SIGURG {
		err = fmt.Errorf("the child gets signal %v", sig)
	}
	return err
}

// Kill kills the child, and waits until it is gone.
func (s *Stepper) Kill() {
	s.process.Kill()
	s.process.Wait()
}
