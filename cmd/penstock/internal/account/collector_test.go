package account

import (
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

// An access log to a collector has every flow once, with all its fields, and counts those that the collector has refused.
func TestCollector(t *testing.T) {
	var mu sync.Mutex
	got := map[string]*logs.LogRecord{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		b, err := io.ReadAll(z)
		m := new(collectorlogs.ExportLogsServiceRequest)
		if err = errors.Join(err, proto.Unmarshal(b, m)); err != nil {
			t.Error(err)
			return
		}
		list := m.ResourceLogs[0].ScopeLogs[0].LogRecords
		mu.Lock()
		defer mu.Unlock()
		if len(list) > collectorBatch {
			t.Errorf("%d records at once", len(list))
		}
		for _, r := range list {
			id := attribute(r, "id").GetStringValue()
			if got[id] != nil {
				t.Errorf("flow %s twice", id)
			}
			got[id] = r
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		b, _ = proto.Marshal(&collectorlogs.ExportLogsServiceResponse{PartialSuccess: &collectorlogs.ExportLogsPartialSuccess{RejectedLogRecords: 1}})
		w.Write(b)
	}))
	defer s.Close()
	l, err := Open(spec.AccessLog{To: spec.ToOTLP, Format: JSON, OTLP: spec.OTLP{To: s.URL}}, slog.New(slog.DiscardHandler), Progress{}, Opening{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	const flows = 700
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range flows {
		e := &Entry{ListenerName: "web", SNI: "a\xff\"b"}
		e.ID, e.Start, e.Duration, e.Cause = uint64(i), start, 1500*time.Millisecond, relay.CauseEnd
		e.Client = relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("192.0.2.1:1000")}
		e.Up.Written = int64(i)
		if i == 1 {
			e.Cause = relay.CauseNoUpstream
		}
		l.Record(e)
	}
	testwait.Until(t, "each flow is sent", func() bool { s := l.Stats(); return s.Written+s.Failed == flows }) // Close waits for a second only
	l.Close()
	mu.Lock()
	defer mu.Unlock()
	if len(got) != flows {
		t.Fatalf("%d flows", len(got))
	}
	if s := l.Stats(); s.Failed < 2 || s.Failed+s.Written != flows || s.Overflowed != 0 {
		t.Errorf("%+v", s)
	}
	for i := range flows {
		r := got[strconv.Itoa(i)]
		if n := attribute(r, "bytes_up").GetIntValue(); n != int64(i) {
			t.Errorf("flow %d has moved %d bytes up", i, n)
		}
	}
	r := got["2"]
	if r.TimeUnixNano != uint64(start.Add(1500*time.Millisecond).UnixNano()) || r.SeverityNumber != logs.SeverityNumber_SEVERITY_NUMBER_INFO || r.EventName != "penstock.flow" {
		t.Errorf("%v", r)
	}
	if x := attribute(r, "duration").GetDoubleValue(); x != 1.5 {
		t.Errorf("it took %vs", x)
	}
	if sni := attribute(r, "sni").GetStringValue(); sni != "a\ufffd\"b" || !utf8.ValidString(sni) {
		t.Errorf("the name is %q", sni)
	}
	if b := r.Body.GetStringValue(); b != "tcp://192.0.2.1:1000 to - by web: end -" {
		t.Errorf("the text is %q", b)
	}
	if r := got["1"]; r.SeverityNumber != logs.SeverityNumber_SEVERITY_NUMBER_WARN {
		t.Errorf("a failed flow is %v", r.SeverityNumber)
	}
}

func attribute(r *logs.LogRecord, name string) *common.AnyValue {
	for _, a := range r.GetAttributes() {
		if a.Key == name {
			return a.Value
		}
	}
	return nil
}

// A collector that asks to be left alone is left alone, by the records of later batches, too.
func TestBusyCollector(t *testing.T) {
	testnet.CheckLeaks(t)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	l, err := Open(spec.AccessLog{To: spec.ToOTLP, Format: JSON, OTLP: spec.OTLP{To: s.URL}}, slog.New(slog.DiscardHandler), Progress{}, Opening{})
	if err != nil {
		t.Fatal(err)
	}
	enter(l, 1)
	testwait.Until(t, "a record is refused", func() bool { return l.Stats().Failed == 1 })
	enter(l, 2, 3)
	l.Close()
	<-l.done
	if got := l.Stats(); asked.Load() != 1 || got != (LogStats{Failed: 3}) {
		t.Errorf("%d requests, %+v", asked.Load(), got)
	}
}
