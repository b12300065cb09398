//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// A meter looks at the relay's processes all the time.
type meter struct {
	w    *world
	stop chan struct{}
	done sync.WaitGroup

	mu        sync.Mutex
	memory    int64 // KB, now
	peak      int64
	files     int
	filesPeak int
	processes int
	cpu       map[int]time.Duration // by process, also of those that have ended

	one     sync.Mutex   // held while somebody looks; before mu
	workers map[int]bool // processes that carry traffic, guarded by one
}

func newMeter(w *world) *meter {
	m := &meter{w: w, stop: make(chan struct{}), cpu: make(map[int]time.Duration), workers: make(map[int]bool)}
	m.look()
	m.done.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-tick.C:
				m.look()
			}
		}
	})
	return m
}

func (m *meter) look() {
	m.one.Lock()
	defer m.one.Unlock()
	m.deaths()
	tree := m.w.service.tree()
	var memory int64
	files := 0
	for _, pid := range tree {
		memory += resident(pid)
		files += proc.Files(pid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pid := range tree {
		if t, err := proc.CPU([]int{pid}); err == nil {
			m.cpu[pid] = t
		}
	}
	m.memory, m.files = memory, files
	m.peak, m.filesPeak, m.processes = max(m.peak, memory), max(m.filesPeak, files), max(m.processes, len(tree))
}

// deaths notes processes that carried traffic and are gone, though the first process is not: it has had
// another worker started, or will.
func (m *meter) deaths() {
	now := make(map[int]bool)
	for _, pid := range m.w.service.workers() {
		now[pid] = true
	}
	if m.w.service.first() == 0 {
		return // that is noted already
	}
	for pid := range m.workers {
		if !now[pid] && gone(pid) && !m.w.replace.Load() {
			m.w.service.mu.Lock()
			m.w.service.ended("a process that carried traffic was killed")
			m.w.service.mu.Unlock()
		}
	}
	m.workers = now
}

// uses returns the memory and the descriptors of now.
func (m *meter) uses() (kb int64, files int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory, m.files
}

// used returns the CPU time so far.
func (m *meter) used() (sum time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.cpu {
		sum += t
	}
	return sum
}

// resident returns the resident memory of a process in KB that is its own or shared memory, without the
// pages of files (proc_pid_status(5), RssAnon and RssShmem).
func resident(pid int) (kb int64) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "RssAnon" || name == "RssShmem" {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			kb += n
		}
	}
	return kb
}
