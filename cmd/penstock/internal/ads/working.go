package ads

import (
	"sync"
	"time"
)

// A workingOnce reports once that a stream works: now, or after a time.
type workingOnce struct {
	report func()

	mu       sync.Mutex
	timer    *time.Timer
	reported bool
	stopped  bool
}

func (w *workingOnce) after(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil && !w.stopped {
		w.timer = time.AfterFunc(d, w.now)
	}
}

// now reports, under the lock, so that stop waits for it.
func (w *workingOnce) now() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reported && !w.stopped {
		w.reported = true
		w.report()
	}
}

// stop ends it. There is no report afterwards.
func (w *workingOnce) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
