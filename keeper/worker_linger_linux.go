package keeper

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// maxLinger bounds how long a worker may linger.
const maxLinger = 30 * 24 * time.Hour

// MayLinger reports whether the keeper lets workers linger: not if it is of an earlier version.
func (w *Worker) MayLinger() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mayLinger
}

// Linger is HandedOver for a worker that goes on for a while with what nobody else can do. The next worker begins at
// once. The keeper holds nothing for a process that lingers, does not start it again, and ends it after most, or when it does
// itself. More than so many such workers do not linger: the oldest one is asked to end by the function of [Worker.OnHandOver], as all are when the
// keeper ends. It is an error to call it if MayLinger is false: the keeper would wait for the end of the process, and then kill it.
func (w *Worker) Linger(most time.Duration, workers int) error {
	return w.handedOver(max(most, 1), min(max(workers, 1), MaxLingering))
}

// Lingering returns the workers before this one that linger, the oldest first, and how the last one ended of those that did.
func (w *Worker) Lingering() ([]Lingering, Death) {
	if w == nil {
		return nil, Death{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lingering, w.lingered
}

// setLingering reads what machine.tellLingering has written.
func (w *Worker) setLingering(msg *message) {
	w.lingered = Death{PID: int(msg.word(0)), Code: int(msg.word(1)), Signal: int(msg.word(2)), Why: msg.text(0)}
	w.lingering = nil
	now := time.Now()
	at := func(clock uint64) time.Time { return now.Add(time.Duration(int64(clock) - sys.MonotonicAt(now))) }
	for i := 3; i+3 < len(msg.words); i += 4 {
		w.lingering = append(w.lingering, Lingering{PID: int(msg.word(i)), Since: at(msg.word(i + 1)), Until: at(msg.word(i + 2)), Dismissed: msg.word(i+3) != 0})
	}
}
