package admin

import (
	"net/http"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// hub takes one sample at a time for all readers of the stream, as long as there are any.
// A reader that falls behind by more than keptSamples is dropped.
type hub struct {
	sample func() []byte
	every  time.Duration

	mu      sync.Mutex
	readers map[chan []byte]struct{}
	stop    chan struct{} // ends the goroutine; nil if there is none
}

const keptSamples = 4

// join adds a reader and returns its channel, which is closed when the reader is dropped.
// It returns nil if there are too many readers.
func (h *hub) join() chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) >= maxStreams {
		return nil
	}
	c := make(chan []byte, keptSamples)
	if h.readers == nil {
		h.readers = map[chan []byte]struct{}{}
	}
	h.readers[c] = struct{}{}
	if h.stop == nil {
		h.stop = make(chan struct{})
		go h.run(h.stop)
	}
	return c
}

// leave removes a reader, if it has not been dropped.
func (h *hub) leave(c chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(c)
}

func (h *hub) drop(c chan []byte) {
	if _, ok := h.readers[c]; !ok {
		return
	}
	delete(h.readers, c)
	close(c)
	if len(h.readers) == 0 {
		close(h.stop)
		h.stop = nil
	}
}

func (h *hub) run(stop <-chan struct{}) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		h.send(h.sample(), stop)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// send sends a sample to all readers, and drops those that have fallen behind.
func (h *hub) send(sample []byte, stop <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-stop: // readers that have joined since then have another goroutine
		return
	default:
	}
	for c := range h.readers {
		select {
		case c <- sample:
		default:
			h.drop(c)
		}
	}
}

// serveStream sends a sample at once and then one per second, as server-sent events.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodHead {
		// Its answer has no body, so the client sends its next request, which nobody would read.
		w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	c := s.stream.join()
	if c == nil {
		w.Header().Set("Retry-After", "5")
		return api.NewProblem(http.StatusServiceUnavailable, "too many streams are open", "16 at once; or GET /v1/status")
	}
	defer s.stream.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	out := newDeadlineWriter(w)
	for {
		select {
		case sample, ok := <-c:
			if !ok {
				panic(http.ErrAbortHandler) // too slow; a clean end would look like the shutdown of the daemon
			}
			if _, err := out.Write(sample); err != nil || out.c.Flush() != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		case <-s.closed:
			return nil
		}
	}
}
