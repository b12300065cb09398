//go:build linux

package main

import (
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// A meter looks at the relay's processes all the time.
type meter struct {
	w    *testbed
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

func newMeter(w *testbed) *meter {
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
	tree := m.w.service.Tree()
	var memory int64
	files := proc.Files(tree...)
	for _, pid := range tree {
		kb, _ := proc.OwnMemory(pid)
		memory += int64(kb)
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
	for _, pid := range m.w.service.Workers() {
		now[pid] = true
	}
	if m.w.service.First() == 0 {
		return // that is noted already
	}
	for pid := range m.workers {
		if !now[pid] && !proc.Alive(pid) && !m.w.replace.Load() {
			m.w.service.died("a process that carried traffic was killed")
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
