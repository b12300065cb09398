package admin

import (
	"net/http"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// hub makes one sample at a time for all readers of the stream. It works while
// there are readers. A reader that is behind by more than keptSamples is dropped.
type hub struct {
	sample func() []byte
	every  time.Duration

	mu      sync.Mutex
	readers map[chan []byte]struct{}
	stop    chan struct{} // ends the goroutine; nil: there is none
}

const keptSamples = 4

// join adds a reader, whose channel is closed when it is dropped. It returns nil if there are too many.
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

// leave takes a reader away, if it is still there.
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

// send gives a sample to all readers that have room, and drops the others.
func (h *hub) send(sample []byte, stop <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-stop: // readers that are there by now have a goroutine of their own
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

// serveStream sends a sample at once and then one a second, as server-sent events.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) error {
	c := s.stream.join()
	if c == nil {
		w.Header().Set("Retry-After", "5")
		return api.NewProblem(http.StatusServiceUnavailable, "too many streams are open", "16 at once; GET /v1/status is always there")
	}
	defer s.stream.leave(c)
	w.Header().Set("Content-Type", "text/event-stream")
	out := patient{w: w, c: http.NewResponseController(w)}
	for {
		select {
		case sample, ok := <-c:
			if !ok {
				panic(http.ErrAbortHandler) // too slow: a clean end would look like the daemon's
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
