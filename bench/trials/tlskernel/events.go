//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
	"github.com/penstock/penstock/bench/internal/proc"
)

// history is what has happened to the workers: a kill is true, an upgrade false. A kill is in it before it happens, an upgrade once it has.
type history struct {
	mu  sync.Mutex
	all []bool
}

func (h *history) add(kill bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, kill)
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// firstKilled reports whether the first event after the given number of them was a kill: if it was an upgrade, the worker that lingers has the TLS.
func (h *history) firstKilled(since int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return since < len(h.all) && h.all[since]
}

// An event is what may happen to a daemon under its connections.
type event struct {
	name string // of the flag that says how often
	most int    // unless the flag says something else
	what string
	do   func(*setup) error
}

var kindsOfEvents = []event{
	{"kills", 20, "the worker is killed", (*setup).kill},
	{"upgrades", 20, "the daemon is upgraded to itself", (*setup).upgrade},
	{"reloads", 5, "a reload changes what the worker can: a timeout, and whether the kernel gets the TLS of later connections", (*setup).reload},
	{"layouts", 5, "another worker takes over, which has another number of event loops: by a reload, or by an upgrade", (*setup).layout},
	{"drains", 5, "a member of each group gets no new connection any more, and the other one does", (*setup).drain},
	{"attacks", 24, "somebody between the relay and a peer cuts, holds back, repeats and swaps records while the worker is killed", (*setup).attack},
	{"searches", 5, "the memory of all processes is searched for keys of connections that are the kernel's, after a search in the beginning", (*setup).search},
}

// events has them happen, in an order that is drawn.
func (s *setup) events() error {
	var order []*event
	for i := range kindsOfEvents {
		order = append(order, slices.Repeat([]*event{&kindsOfEvents[i]}, s.counts[i])...)
	}
	rand.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	for i, e := range order {
		if err := s.exchanged(true); err != nil || s.faults.Load() > 0 {
			return err
		}
		time.Sleep(s.every)
		s.beginning.Lock()
		err := e.do(s)
		s.beginning.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if done := i + 1; done%20 == 0 {
			fmt.Fprintf(s.Out, "%v: %d events, %d exchanges, %d bytes compared\n", time.Since(s.begun).Round(time.Second), done, s.moved.Load(), s.bytes.Load())
		}
	}
	return s.exchanged(true)
}

// happened says how often each of the events was asked for.
func (s *setup) happened() string {
	var all []string
	for i := range kindsOfEvents {
		all = append(all, fmt.Sprintf("%d %s", s.counts[i], kindsOfEvents[i].name))
	}
	return strings.Join(all, ", ")
}

// exchanged waits until each client has had an exchange that began after now; or each whose connection does not end before the trial does.
func (s *setup) exchanged(all bool) error {
	before := make([]int64, len(s.clients))
	for i, c := range s.clients {
		before[i] = c.exchanges.Load()
	}
	for i, c := range s.clients {
		if !all && !c.kind.kernel {
			continue
		}
		err := proc.Until(fmt.Sprintf("an exchange of %s, client %d", c.kind.name, i), s.patience, 50*time.Millisecond, func() error {
			if c.exchanges.Load() < before[i]+2 && s.faults.Load() == 0 { // the first one may have begun before
				return errors.New("it has not ended")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// worker returns the process that relays, if it is good.
func (s *setup) worker() (pid int, err error) {
	text, err := s.daemon.Get("/v1/status")
	if err != nil {
		return 0, err
	}
	var status struct {
		Keeper struct {
			Worker  int  `json:"worker_pid"`
			Healthy bool `json:"healthy"`
		} `json:"keeper"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return 0, err
	}
	if !status.Keeper.Healthy {
		err = errors.New("the worker is not healthy yet")
	}
	return status.Keeper.Worker, err
}

// after waits until another worker relays. It asks seldom, because in an emulated machine the worker that starts needs the time for itself.
func (s *setup) after(before int) error {
	return proc.Until("another worker", s.patience, 200*time.Millisecond, func() error {
		pid, err := s.worker()
		if err == nil && pid == before {
			err = fmt.Errorf("it is process %d, as before", pid)
		}
		return err
	})
}

func (s *setup) kill() error { return s.killed(func() {}) }

// killed kills the worker, calls meanwhile, and waits for another one.
func (s *setup) killed(meanwhile func()) error {
	pid, err := s.worker()
	if err != nil {
		return err
	}
	s.history.add(true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	meanwhile()
	return s.after(pid)
}

func (s *setup) upgrade() error {
	before, err := s.worker()
	if err != nil {
		return err
	}
	steps, err := s.daemon.Ask("POST", "/v1/upgrade", fmt.Sprintf(`{"binary": %q}`, s.Penstock))
	if errors.Is(err, admin.ErrNoWorker) { // its answer was cut off, which says nothing of the upgrade
		pid := 0
		if err := proc.Until("a worker", s.patience, 200*time.Millisecond, func() (err error) { pid, err = s.worker(); return err }); err != nil {
			return err
		}
		if pid == before {
			return s.upgrade()
		}
		s.history.add(false)
		return nil
	}
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	if bytes.Contains(steps, []byte(`"error":`)) { // the worker goes on, for which an emulated machine has reasons enough
		fmt.Fprintf(s.Out, "an upgrade was refused: %s\n", steps)
		s.refused++
		return nil
	}
	s.history.add(false)
	return s.after(before)
}

// write writes the configuration as it is now.
func (s *setup) write() error {
	return os.WriteFile(filepath.Join(s.daemon.Dir, "penstock.yaml"), []byte(s.config()), 0o644)
}

func (s *setup) reload() error {
	s.idle++
	s.later = [...]string{"auto", "off"}[s.idle%2]
	before, err := s.worker()
	if err == nil {
		err = s.write()
	}
	if err == nil {
		_, err = s.daemon.Ask("POST", "/v1/reload", "")
	}
	if err != nil {
		return err
	}
	if now, err := s.worker(); err != nil || now != before {
		return fmt.Errorf("the worker is process %d, which was %d: %w", now, before, err)
	}
	return nil
}

func (s *setup) layout() error {
	s.loops = 3 - s.loops
	if err := s.write(); err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		return s.upgrade()
	}
	before, err := s.worker()
	if err == nil {
		_, err = s.daemon.Ask("POST", "/v1/reload", "")
	}
	if err != nil && !errors.Is(err, admin.ErrNoWorker) { // then the answer was cut off, by what was asked for
		return err
	}
	s.history.add(false)
	return s.after(before)
}

func (s *setup) drain() error {
	s.drained = 1 - s.drained
	for group := range s.members {
		for member, state := range map[int]string{1 - s.drained: "enable", s.drained: "drain"} {
			path := fmt.Sprintf("/v1/groups/%s/members/%d", group, member)
			if _, err := s.daemon.Ask("PATCH", path, fmt.Sprintf(`{"state": %q}`, state)); err != nil {
				return err
			}
		}
	}
	return nil
}

// end ends the daemon under its connections: they go on, and when the last one has ended, it does.
func (s *setup) end(clients *sync.WaitGroup) error {
	s.beginning.Lock()
	keeper := s.daemon.First()
	// Behind an upgrade the keeper executes itself. A SIGTERM that comes before it can receive one ends it, and its worker drains without it.
	err := proc.Until("a keeper that receives signals", s.patience, 10*time.Millisecond, func() error { return catchesSIGTERM(keeper) })
	if err == nil {
		err = syscall.Kill(keeper, syscall.SIGTERM)
	}
	if err == nil {
		err = s.exchanged(false)
	}
	s.over.Store(true)
	s.beginning.Unlock()
	clients.Wait()
	if err == nil {
		err = proc.Wait("the end of the daemon, which has no flow any more", s.patience, s.daemon.Over)
	}
	if code, _ := s.daemon.Stop(s.patience); err == nil && code != 0 {
		err = fmt.Errorf("the daemon ended with %d", code)
	}
	return err
}

func catchesSIGTERM(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	var caught uint64 // a bit for each signal, from 1: proc_pid_status(5)
	_, mask, _ := strings.Cut(string(text), "SigCgt:")
	if _, err := fmt.Sscanf(mask, "%x", &caught); err != nil {
		return err
	}
	if caught>>(syscall.SIGTERM-1)&1 == 0 {
		return errors.New("it does not catch SIGTERM yet")
	}
	return nil
}
