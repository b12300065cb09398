package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/otlp"
)

// A worker that hands over leaves the records that a collector does not have yet to the next one: nobody relays while it would wait for an
// answer, and the collector may be away. A log pauses first, while flows go on, so that no request is on its way when it leaves.
//
//	sending ──Pause──▶ paused ──Leave──▶ left, and adopted by the next worker
//	   ▲                 │
//	   └─────Continue────┘

// errPaused is why the pauses between requests have ended.
var errPaused = errors.New("the log is paused")

// errPausedFull is why a record has no room.
var errPausedFull = fmt.Errorf("a worker hands over, and %d records wait for the next one already", collectorMost)

// leaver is a sink whose records another process can send.
type leaver interface {
	// pause keeps a request from being begun, and waits for at most that long until none is on its way.
	pause(most time.Duration)
	goOn()
	// left returns the records that were not sent, and their number. The writer has ended.
	left() ([]byte, int, error)
	// adopt takes over what another process has left, at most that many records, and returns their number. The writer calls it.
	adopt(text []byte, most int64) (int, error)
}

func (s *collector) pause(most time.Duration) {
	s.mu.Lock()
	s.pauses(errPaused)
	s.mu.Unlock()
	select {
	case s.sending <- struct{}{}:
		<-s.sending
	case <-time.After(most):
	}
}

func (s *collector) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait, s.pauses = context.WithCancelCause(s.ctx)
}

func (s *collector) left() ([]byte, int, error) {
	text, err := otlp.EncodeRecords(s.records)
	return text, len(s.records), err
}

func (s *collector) adopt(text []byte, most int64) (int, error) {
	records, err := otlp.DecodeRecords(text)
	most = min(most, int64(collectorMost-len(s.records)))
	records = records[:max(0, min(int64(len(records)), most))] // only so many are counted as taken
	s.records = append(records, s.records...)                  // they are older
	return len(records), err
}

// Pause begins no further request, and waits for at most that long for the answer to one that is on its way. A log that writes to something
// else goes on.
func (l *Log) Pause(most time.Duration) {
	if l == nil {
		return
	}
	if s, ok := l.sink.(leaver); ok {
		s.pause(most)
	}
}

// Continue ends a pause.
func (l *Log) Continue() {
	if l == nil {
		return
	}
	if s, ok := l.sink.(leaver); ok {
		s.goOn()
		signal(l.wake)
	}
}

// Leave ends the log, and returns the records that were not written, and their number, if another process can write them; otherwise it is
// Close. A request that is still on its way is given up: the next process sends its records again. The engine must be closed before.
func (l *Log) Leave() (text []byte, n int) {
	if l == nil {
		return nil, 0
	}
	s, ok := l.sink.(leaver)
	if !ok {
		l.Close()
		return nil, 0
	}
	s.pause(0)
	l.sink.abort()
	l.Close()
	select {
	case <-l.done:
	default: // the writer hangs; what it has is known to be missing
		return nil, 0
	}
	text, n, err := s.left()
	if err != nil {
		l.daemonLog.Error("flow records are lost to the "+l.name+" of the next worker", "records", n, "error", err)
		return nil, 0
	}
	return text, n
}

// Adopts reports whether the log can write what another process has left.
func (l *Log) Adopts() bool {
	if l == nil {
		return false
	}
	_, ok := l.sink.(leaver)
	return ok
}

// Adopt has the writer write n records that another process has left, or counts them as failed if reading them has. It is called once.
func (l *Log) Adopt(n int64, text []byte, err error) {
	l.adopted <- func() {
		got := 0
		if err == nil {
			got, err = l.sink.(leaver).adopt(text, n)
		}
		if lost := n - int64(got); lost > 0 {
			l.count(0, int(lost), err)
		}
	}
	signal(l.wake)
}
