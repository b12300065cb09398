//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/proc"
)

// restartAfter is how long the service manager waits before it starts a relay again, as systemd does.
const restartAfter = 100 * time.Millisecond

// A service is a relay that is started again when its first process has ended.
type service struct {
	proc.Process
	launch launch
	helper atomic.Int64 // a process that is not the relay's: see push and exhaust

	mu   sync.Mutex
	ends int
	end  string
}

// newService returns a relay that is not started yet.
func newService(w *testbed, l launch, out *os.File) (*service, error) {
	cmd, err := child.Command("launch", l)
	if err != nil {
		return nil, err
	}
	v := &service{launch: l, Process: proc.Process{
		Argv: cmd.Args, Dir: w.dir, Out: out, Again: true, After: restartAfter,
		Attr:  syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS},
		Start: func(cmd *exec.Cmd) error { return w.space.run(cmd.Start) },
	}}
	v.All = func() []int { // also those that linger after a reload
		return slices.DeleteFunc(proc.Tree(os.Getpid())[1:], func(pid int) bool { return int64(pid) == v.helper.Load() })
	}
	v.Ended = func(err error) { v.died(fmt.Sprint("the first process: ", err)) }
	return v, nil
}

// died notes an end that nobody asked for.
func (v *service) died(how string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ends++; v.end == "" {
		v.end = how
	}
}

// deaths returns how often the relay has ended, and how it did first.
func (v *service) deaths() (int, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ends, v.end
}
