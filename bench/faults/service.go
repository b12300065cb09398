//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// restartAfter is how long the service manager waits before it starts a relay again, as systemd does.
const restartAfter = 100 * time.Millisecond

// A service runs a relay and starts it again when its first process has ended.
type service struct {
	w      *world
	launch launch
	out    *os.File     // what it writes to standard output and error
	helper atomic.Int64 // a process that is not the relay's: see push and exhaust

	mu      sync.Mutex
	main    int // its first process; 0: none
	stopped bool
	ends    int
	end     string
}

// start starts the relay.
func (v *service) start() error {
	text, err := json.Marshal(v.launch)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "launch", string(text))
	cmd.Stdout, cmd.Stderr = v.out, v.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := v.w.space.run(cmd.Start); err != nil {
		return err
	}
	v.mu.Lock()
	v.main = cmd.Process.Pid
	v.mu.Unlock()
	go func() {
		err := cmd.Wait()
		v.mu.Lock()
		v.main = 0
		stopped := v.stopped
		if !stopped {
			v.ended(fmt.Sprint("the first process: ", err))
		}
		v.mu.Unlock()
		if stopped {
			return
		}
		time.Sleep(restartAfter)
		if err := v.start(); err != nil {
			v.w.fail(fmt.Errorf("start the relay again: %w", err))
		}
	}()
	return nil
}

// ended notes an end that nobody asked for. The caller holds mu.
func (v *service) ended(how string) {
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

func (v *service) first() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.main
}

// tree returns all processes of the relay, also those that linger after a reload.
func (v *service) tree() []int {
	return slices.DeleteFunc(proc.Tree(os.Getpid())[1:], func(pid int) bool { return int64(pid) == v.helper.Load() || gone(pid) })
}

// workers returns the processes that carry traffic: the children of the first, or that one alone.
func (v *service) workers() []int {
	main := v.first()
	if main == 0 {
		return nil
	}
	tree := slices.DeleteFunc(proc.Tree(main), gone)
	if len(tree) > 1 {
		return tree[1:]
	}
	return tree
}

// gone reports whether a process has ended.
func gone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	i := strings.LastIndex(string(text), ") ")
	return i < 0 || text[i+2] == 'Z'
}

// signal sends a signal to all processes that carry traffic, and returns how many.
func (v *service) signal(sig syscall.Signal) int {
	all := v.workers()
	for _, pid := range all {
		syscall.Kill(pid, sig)
	}
	return len(all)
}

// stop ends the relay for good.
func (v *service) stop() {
	v.mu.Lock()
	v.stopped = true
	v.mu.Unlock()
	for end := time.Now().Add(patience); len(v.tree()) > 0 && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for _, pid := range v.tree() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// printed returns the end of what the relay has printed, and of its log of errors.
func (v *service) printed() string {
	var all string
	for _, name := range []string{"output", "error.log"} {
		b, _ := os.ReadFile(filepath.Join(v.w.dir, name))
		all += string(b[max(0, len(b)-700):])
	}
	return all
}
