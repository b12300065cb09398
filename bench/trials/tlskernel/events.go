//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

// events kills and upgrades, in turn.
func (s *setup) events() error {
	for kills, upgrades := s.kills, s.upgrades; kills+upgrades > 0; {
		if err := s.exchanged(); err != nil || s.faults.Load() > 0 {
			return err
		}
		time.Sleep(s.every)
		kill := rand.IntN(kills+upgrades) < kills
		event := s.upgrade
		if kill {
			kills--
			event = s.kill
		} else {
			upgrades--
		}
		s.beginning.Lock()
		err := event()
		s.beginning.Unlock()
		if err != nil {
			return err
		}
		if done := s.kills + s.upgrades - kills - upgrades; done%20 == 0 {
			fmt.Fprintf(s.Out, "%v: %d events, %d exchanges, %d bytes compared\n", time.Since(s.begun).Round(time.Second), done, s.moved.Load(), s.bytes.Load())
		}
	}
	return s.exchanged()
}

// exchanged waits until each client has had an exchange that began after now.
func (s *setup) exchanged() error {
	before := make([]int64, len(s.clients))
	for i, c := range s.clients {
		before[i] = c.exchanges.Load()
	}
	for i, c := range s.clients {
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

func (s *setup) kill() error {
	pid, err := s.worker()
	if err != nil {
		return err
	}
	s.history.add(true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
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
