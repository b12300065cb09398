package account

import (
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock/cmd/penstock/internal/otlp"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// slowCollector answers when it may, and notes the flows of each request that it has answered.
type slowCollector struct {
	t      *testing.T
	asked  atomic.Int64
	answer chan int // a status for each request; closed: 200

	mu  sync.Mutex
	ids []int
}

func (c *slowCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		c.t.Error(err)
		return
	}
	b, err := io.ReadAll(z)
	m := new(collectorlogs.ExportLogsServiceRequest)
	if err != nil || proto.Unmarshal(b, m) != nil {
		return // it was given up
	}
	c.asked.Add(1)
	status, open := http.StatusOK, true
	select {
	case status, open = <-c.answer:
	case <-r.Context().Done():
		return
	}
	if !open {
		status = http.StatusOK
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if status == http.StatusOK {
		for _, r := range m.ResourceLogs[0].ScopeLogs[0].LogRecords {
			id, err := strconv.Atoi(attribute(r, "id").GetStringValue())
			if err != nil {
				c.t.Error(err)
			}
			c.ids = append(c.ids, id)
		}
	}
	w.WriteHeader(status)
}

func (c *slowCollector) has() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ids)
}

// openSlow opens a log to a collector, with progress that outlives it.
func openSlow(t *testing.T, url string, p Progress) *Log {
	t.Helper()
	l, err := Open(spec.AccessLog{To: spec.ToOTLP, Format: JSON, OTLP: spec.OTLP{To: url}}, slog.New(slog.DiscardHandler), p, Opening{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// upTo are the ids of n flows.
func upTo(n int) (ids []uint64) {
	for i := range n {
		ids = append(ids, uint64(i))
	}
	return ids
}

// What a worker leaves, because its collector does not answer, is too far behind, or is away, the next worker sends, in order: each record once,
// and none is counted as dropped.
func TestLeave(t *testing.T) {
	testnet.CheckLeaks(t)
	const flows = collectorBatch + 7
	for name, before := range map[string]func(*slowCollector, *Log){
		"answered while it pauses": func(c *slowCollector, l *Log) {
			go func() { c.answer <- http.StatusOK }()
			l.Pause(testwait.Patience)
			enter(l, upTo(flows)[1:]...)
		},
		"not answered": func(c *slowCollector, l *Log) {
			l.Pause(0)
			enter(l, upTo(flows)[1:]...)
		},
		"away": func(c *slowCollector, l *Log) {
			c.answer <- http.StatusServiceUnavailable
			testwait.Until(c.t, "it has not succeeded", func() bool { return len(c.answer) == 0 })
			l.Pause(testwait.Patience)
			enter(l, upTo(flows)[1:]...)
		},
		"paused in vain": func(c *slowCollector, l *Log) {
			l.Pause(0)
			l.Continue()
			enter(l, upTo(flows)[1:]...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &slowCollector{t: t, answer: make(chan int)}
			s := httptest.NewServer(c)
			defer s.Close()
			p := Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
			l := openSlow(t, s.URL, p)
			enter(l, 0)
			testwait.Until(t, "the first record is on its way", func() bool { return c.asked.Load() > 0 })
			before(c, l)
			text, n := l.Leave()
			if got := len(c.has()); n+got != flows || l.Stats() != (LogStats{Written: int64(got)}) {
				t.Errorf("%d records are left, the collector has %d of %d: %+v", n, got, flows, l.Stats())
			}
			close(c.answer)
			dropped, adopt := p.Resume(int64(n))
			l = openSlow(t, s.URL, p)
			l.Adopt(adopt, text, nil)
			enter(l, flows, flows+1)
			testwait.Until(t, "all have been sent", func() bool { return p.Done.Load() == flows+2 })
			l.Close()
			got := c.has()
			for i := range got {
				if got[i] != i {
					t.Fatalf("record %d is of flow %d", i, got[i])
				}
			}
			if len(got) != flows+2 || dropped != 0 || p.Dropped.Load() != 0 {
				t.Errorf("%d records; %d and %d were dropped", len(got), dropped, p.Dropped.Load())
			}
		})
	}
}

// What cannot be read of what was left is counted, and so is what a log that is no collector's would have to write.
func TestAdoptsInVain(t *testing.T) {
	testnet.CheckLeaks(t)
	c := &slowCollector{t: t, answer: make(chan int)}
	close(c.answer)
	s := httptest.NewServer(c)
	defer s.Close()
	p := Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	p.Taken.Store(3)
	l := openSlow(t, s.URL, p)
	l.Adopt(3, []byte{0xff}, nil)
	testwait.Until(t, "they are counted", func() bool { return p.Dropped.Load() == 3 && p.Done.Load() == 3 })
	l.Close()

	// More than are said to be left, so that the counts would be of more records than there were.
	var records []*logs.LogRecord
	for range 5 {
		records = append(records, &logs.LogRecord{Attributes: []*common.KeyValue{otlp.Text("id", "7")}})
	}
	text, err := otlp.EncodeRecords(records)
	if err != nil {
		t.Fatal(err)
	}
	p.Taken.Add(2)
	l = openSlow(t, s.URL, p)
	l.Adopt(2, text, nil)
	testwait.Until(t, "they are sent", func() bool { return p.Done.Load() >= p.Taken.Load() })
	l.Close()
	if done, taken := p.Done.Load(), p.Taken.Load(); done != taken {
		t.Errorf("%d of %d records are done with", done, taken)
	}
	p.Taken.Add(2)
	if dropped, adopt := p.Resume(-1); dropped != 2 || adopt != 0 || p.Done.Load() != p.Taken.Load() {
		t.Errorf("of a damaged number, %d are dropped and %d adopted", dropped, adopt)
	}
	if l := NewFlowLog(slog.New(slog.DiscardHandler), LogAll, Progress{}); l.Adopts() {
		t.Error("the daemon's log adopts records")
	} else if text, n := l.Leave(); text != nil || n != 0 {
		t.Errorf("it leaves %d", n)
	}
}

// A pause begins no request, also if one has waited for its turn since before it, and what comes meanwhile is bounded: what has no room is
// counted, and the next worker sends what has been left.
func TestPauseIsBounded(t *testing.T) {
	testnet.CheckLeaks(t)
	c := &slowCollector{t: t, answer: make(chan int)}
	s := httptest.NewServer(c)
	defer s.Close()
	p := Progress{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	l := openSlow(t, s.URL, p)
	sink := l.sink.(*collector)
	sink.sending <- struct{}{} // as if another request were on its way
	enter(l, 0)
	testwait.Until(t, "a request waits for its turn", func() bool {
		_, blocked := testwait.Goroutines("account.(*collector).send.func1")
		return blocked == 1
	})
	l.Pause(0)
	<-sink.sending
	const beyond = 10
	for i := range collectorMost - 1 + beyond { // no more at a time than the ring has room for
		enter(l, uint64(i+1))
		if (i+1)%collectorBatch == 0 {
			testwait.Until(t, "the writer has taken them", func() bool {
				s, wrapped := l.ring.at(l.ring.tail.Load() - 1)
				return s.turn.Load() == wrapped+uint64(len(l.ring.slots))
			})
		}
	}
	testwait.Until(t, "what has no room is counted", func() bool { return l.Stats().Failed == beyond })
	text, n := l.Leave()
	if n != collectorMost || c.asked.Load() != 0 {
		t.Errorf("%d records are left of %d, after %d requests", n, collectorMost, c.asked.Load())
	}
	close(c.answer)
	_, adopt := p.Resume(int64(n))
	l = openSlow(t, s.URL, p)
	l.Adopt(adopt, text, nil)
	testwait.Until(t, "all have been sent", func() bool { return len(c.has()) == collectorMost })
	l.Close()
}
