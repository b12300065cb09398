package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// maxCaptures is how many captures may be open at once.
const maxCaptures = 4

// capture answers with a line for each flow that a capture is about, as it is connected and as it ends. The packets are the client's to
// take, which needs more than the token.
func (s *Server) capture(w http.ResponseWriter, r *http.Request) error {
	var n api.NewCapture
	if err := body(r, &n); err != nil {
		return err
	}
	source, err := n.Check()
	if err != nil {
		return err
	}
	if open := s.captures.Add(1); open > maxCaptures {
		s.captures.Add(-1)
		return api.NewProblem(http.StatusServiceUnavailable, "too many captures are open", strconv.Itoa(maxCaptures)+" at once")
	}
	defer s.captures.Add(-1)
	what := "listener " + n.Listener
	switch {
	case n.Flow != 0:
		what = "flow " + strconv.FormatUint(n.Flow, 10)
	case n.Source != "" && n.Listener != "":
		what = source.String() + " at listener " + n.Listener
	case n.Source != "":
		what = source.String()
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(n.For*float64(time.Second)))
	defer cancel()
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := newDeadlineWriter(w)
	began := false
	err = s.source.Capture(ctx, n, source, func(line api.CaptureLine) error {
		if !began {
			began = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			s.event(r, "info", "capture", what, "a capture began")
		}
		b, err := json.Marshal(line)
		if err == nil {
			_, err = out.Write(append(b, '\n'))
		}
		if err == nil {
			err = out.c.Flush()
		}
		return err
	})
	if began {
		return nil // a client that has gone, or the end of its time
	}
	return err
}
