package account

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay"
)

func failedWith(c relay.Cause) *Entry {
	return &Entry{Record: relay.Record{
		ID:       7,
		Client:   tcp("192.0.2.1:1000"),
		Upstream: relay.Addr{Network: relay.Unix, Path: "/run/app.sock"},
		Attempts: 1,
		Up:       relay.Transfer{Read: 10, Written: 10, Path: datapath.Copy, Why: datapath.WhySmall},
		Down:     relay.Transfer{Read: 30, Written: 20, Spliced: 20, Path: datapath.Splice},
		Duration: 1500 * time.Millisecond,
		Cause:    c,
	}}
}

func TestFlowLogLine(t *testing.T) {
	testnet.CheckLeaks(t)
	var out bytes.Buffer
	j := NewFlowLog(textLog(&out), LogAll, Progress{})
	j.Record(failedWith(relay.CauseEnd))
	e := failedWith(relay.CauseNoUpstream)
	e.Err, e.Attempts, e.ListenerName, e.Group = errors.New("connection refused"), 2, "web", "app"
	j.Record(e)
	j.Close()
	const want = `level=INFO msg=flow id=7 cause=end client=tcp://192.0.2.1:1000 upstream=unix:///run/app.sock bytes_up=10 bytes_down=20 duration=1.5s bytes_dropped=10 path_up="copy: small reads" path_down=splice
level=WARN msg=flow id=7 cause=no-upstream listener=web group=app client=tcp://192.0.2.1:1000 upstream=unix:///run/app.sock bytes_up=10 bytes_down=20 duration=1.5s bytes_dropped=10 attempts=2 path_up="copy: small reads" path_down=splice error="connection refused"
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestWhich(t *testing.T) {
	testnet.CheckLeaks(t)
	for which, want := range map[string]int{LogNone: 0, LogFailed: 1, LogAll: 3} {
		var out bytes.Buffer
		j := NewFlowLog(textLog(&out), which, Progress{})
		for _, c := range []relay.Cause{relay.CauseEnd, relay.CauseUpstreamReset, relay.CauseConnectTimeout} {
			j.Record(failedWith(c))
		}
		j.Reopen()
		j.Close()
		j.Close()
		if n := strings.Count(out.String(), "\n"); n != want || j.Stats().Written != int64(want) {
			t.Errorf("%s: %d lines, %+v, want %d", which, n, j.Stats(), want)
		}
	}
}

// blockedWriter is a log whose reader has stopped.
type blockedWriter struct {
	release chan struct{}
	mu      sync.Mutex
	out     bytes.Buffer
}

func (s *blockedWriter) Write(b []byte) (int, error) {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

// A log that nobody reads must not stop the loops; each flow is either written
// or counted.
func TestBlockedLog(t *testing.T) {
	testnet.CheckLeaks(t)
	w := &blockedWriter{release: make(chan struct{})}
	j := NewFlowLog(textLog(w), LogAll, Progress{})
	const flows = 3 * ringSize
	for range flows {
		j.Record(failedWith(relay.CauseEnd)) // returns, or the test never ends
	}
	close(w.release)
	j.Close()
	<-j.done // on a slow machine this may take longer than Close waits, and so may the report
	<-j.reported
	text := w.out.String()
	lines, dropped := strings.Count(text, "msg=flow"), 0
	for _, m := range regexp.MustCompile(`dropped flow records" overflowed=(\d+) failed=0`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		dropped += n
	}
	if dropped == 0 || lines+dropped != flows {
		t.Errorf("%d lines and %d counted, of %d flows", lines, dropped, flows)
	}
}

// Close does not wait for a writer that blocks for ever.
func TestCloseIsBounded(t *testing.T) {
	testnet.CheckLeaks(t)
	w := &blockedWriter{release: make(chan struct{})}
	defer close(w.release)
	j := NewFlowLog(textLog(w), LogAll, Progress{})
	j.Record(failedWith(relay.CauseEnd))
	closed := make(chan struct{})
	go func() { j.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close waits for a blocked writer")
	}
}

// hangingSink is a sink whose peer hangs until the sink is aborted.
type hangingSink struct {
	pending int
	aborted chan struct{}
}

func (s *hangingSink) put(*Entry) (written, failed int, err error) {
	s.pending++
	return 0, 0, nil
}

func (s *hangingSink) flush() (written, failed int, err error) {
	if s.pending == 0 {
		return 0, 0, nil
	}
	<-s.aborted
	n := s.pending
	s.pending = 0
	return 0, n, errors.New("aborted")
}

func (s *hangingSink) reopen() error { return nil }
func (s *hangingSink) abort()        { close(s.aborted) }
func (s *hangingSink) close()        {}

// What a peer that hangs did not get is counted and reported before Close returns.
func TestCloseReportsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLog("access log", LogAll, ringSize, textLog(&out), &hangingSink{aborted: make(chan struct{})}, time.Hour, Progress{})
		enter(l, 1, 2, 3)
		began := time.Now()
		l.Close()
		if took := time.Since(began); took > closeTimeout {
			t.Errorf("Close has waited %v", took)
		}
		if !strings.Contains(out.String(), "dropped flow records\" overflowed=0 failed=3 error=aborted") || l.Stats().Failed != 3 {
			t.Errorf("%q, %+v", out.String(), l.Stats())
		}
	})
}

// What the hook does on a loop allocates nothing, as app calls it.
func TestRecordAllocatesNothing(t *testing.T) {
	for _, which := range []string{LogFailed, LogAll} {
		j := newLog("log", which, ringSize, textLog(io.Discard), discard{}, reportInterval, Progress{})
		r := &entry().Record
		r.Cause = relay.CauseEnd
		if n := testing.AllocsPerRun(1000, func() { j.Record(&Entry{Record: *r}) }); n != 0 {
			t.Errorf("%s: %v allocations per flow", which, n)
		}
		j.Close()
	}
}

// discard is a sink without a cost.
type discard struct{}

func (discard) put(*Entry) (int, int, error) { return 1, 0, nil }
func (discard) flush() (int, int, error)     { return 0, 0, nil }
func (discard) reopen() error                { return nil }
func (discard) abort()                       {}
func (discard) close()                       {}

// BenchmarkRecord is the cost on the loop's side of a record that finds room, the
// writer's side of the ring included; and of one that does not.
func BenchmarkRecord(b *testing.B) {
	e := entry()
	b.Run("room=yes", func(b *testing.B) {
		l := &Log{which: LogAll, ring: newRing(ringSize), wake: make(chan struct{}, 1), progress: Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}}
		b.ReportAllocs()
		for b.Loop() {
			l.Record(e)
			l.ring.next()
			l.ring.drop()
		}
	})
	b.Run("room=no", func(b *testing.B) {
		l := &Log{which: LogAll, ring: newRing(1), wake: make(chan struct{}, 1), progress: Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}}
		b.ReportAllocs()
		for b.Loop() {
			l.Record(e)
		}
	})
}

// blockedSink is a sink that is not done with its first line before it is released.
type blockedSink struct {
	discard
	release chan struct{}
}

func (s blockedSink) put(*Entry) (int, int, error) { <-s.release; return 1, 0, nil }

// What a process that is killed had taken and not written is counted by the next one, once.
func TestDroppedByDeath(t *testing.T) {
	testnet.CheckLeaks(t)
	newProgress := func() Progress { return Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)} }
	p := newProgress()
	release := make(chan struct{})
	l := newLog("log", LogAll, 4, textLog(io.Discard), blockedSink{release: release}, reportInterval, p)
	for range 7 {
		l.Record(failedWith(relay.CauseEnd))
	}
	if over := l.Stats().Overflowed; over != 3 { // the one that the writer has is in the ring still
		t.Errorf("%d did not fit", over)
	}
	n, _ := p.Resume(0)
	again, _ := p.Resume(0)
	if n != 4 || again != 0 || p.Dropped.Load() != 7 {
		t.Errorf("dropped %d and then %d, want 4 and 0; %d of all, want 7", n, again, p.Dropped.Load())
	}
	close(release)
	l.Close()

	p = newProgress()
	l = newLog("log", LogAll, 4, textLog(io.Discard), discard{}, reportInterval, p)
	for range 7 {
		l.Record(failedWith(relay.CauseEnd))
	}
	l.Close()
	if n, _ := p.Resume(0); n != 0 || p.Taken.Load() != 7 || p.Dropped.Load() != l.Stats().Dropped() {
		t.Errorf("dropped %d of %d, want 0 of 7; %d of all, want %d", n, p.Taken.Load(), p.Dropped.Load(), l.Stats().Dropped())
	}
}

// What was left to the next process is not counted as dropped, unless a process in between, which did not know of it, has done so.
func TestResumeWithWhatWasLeft(t *testing.T) {
	p := Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	p.Taken.Store(10)
	p.Done.Store(3)
	if dropped, adopt := p.Resume(5); dropped != 2 || adopt != 5 || p.Dropped.Load() != 2 || p.Done.Load() != 5 {
		t.Errorf("%d dropped, %d to adopt: %d and %d", dropped, adopt, p.Dropped.Load(), p.Done.Load())
	}
	if dropped, adopt := p.Resume(0); dropped != 5 || adopt != 0 { // an older version
		t.Errorf("%d dropped, %d to adopt", dropped, adopt)
	}
	if dropped, adopt := p.Resume(5); dropped != 0 || adopt != 0 || p.Done.Load() != 10 || p.Dropped.Load() != 7 {
		t.Errorf("%d dropped, %d to adopt: %d and %d", dropped, adopt, p.Dropped.Load(), p.Done.Load())
	}
}
