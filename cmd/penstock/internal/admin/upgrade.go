package admin

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// upgrade answers with a line for each step of an upgrade, as it comes. The answer ends in the middle when
// this process hands over: the next one has the result in its status.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) error {
	var u api.Upgrade
	if err := body(r, &u); err != nil {
		return err
	}
	if u.Binary != "" && !filepath.IsAbs(u.Binary) {
		return bad("binary: "+api.Quote(u.Binary), "an absolute path on the daemon's host")
	}
	told := "upgrade requested"
	if u.Binary != "" {
		told += ": " + u.Binary
	}
	if u.DryRun {
		told += " (dry run)"
	}
	s.event(r, "info", "worker", "daemon", told)
	a := &stepAnswer{w: w, control: http.NewResponseController(w)}
	done := make(chan error, 1)
	go func() { done <- s.source.Upgrade(r.Context(), u, a.step) }()
	var err error
	select {
	case err = <-done:
	case <-s.closed:
	}
	if a.end() {
		return nil // what is wrong is in the last line
	}
	if err == nil {
		err = api.NewProblem(http.StatusServiceUnavailable, "the daemon hands over, and nothing was changed", "the same request, again")
	}
	return err
}

// stepAnswer is an answer of lines.
type stepAnswer struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
	ended   bool
}

// step writes one line.
func (a *stepAnswer) step(step api.UpgradeStep) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	if !a.began {
		a.began = true
		a.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	a.control.SetWriteDeadline(time.Now().Add(writeTime))
	json.NewEncoder(a.w).Encode(step) // a client that has gone does not stop an upgrade
	a.control.Flush()
}

// end stops the writing of lines, and reports whether any were written.
func (a *stepAnswer) end() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	return a.began
}
