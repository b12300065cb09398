package account

import (
	"context"
	"strconv"
	"time"

	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/penstock/penstock/cmd/penstock/internal/otlp"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// collectorBatch is the number of records of one request.
	collectorBatch = 512
	// collectorPatience is how long records of a batch are tried to be sent. The next ones wait in the ring meanwhile.
	collectorPatience = 30 * time.Second
)

// collectorBody is the text of a record, unless the configuration has a template.
const collectorBody = "{client} to {upstream} by {listener}: {cause} {reason}"

// collector is a sink that sends records to an OpenTelemetry collector. The fields are attributes with the names that
// they have in JSON.
type collector struct {
	client  *otlp.Client
	source  otlp.Source
	body    formatter
	line    []byte
	records []*logs.LogRecord
	ctx     context.Context
	cancel  context.CancelFunc
}

func newCollector(cfg spec.AccessLog, format formatter, version string) *collector {
	if cfg.Format == JSON {
		format, _ = newFormatter(collectorBody) // which is valid
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &collector{client: otlp.New(cfg.OTLP), source: otlp.Source{Version: version, Instance: cfg.OTLP.Instance}, body: format, ctx: ctx, cancel: cancel}
}

func (s *collector) put(e *Entry) (written, failed int, err error) {
	s.records = append(s.records, s.record(e))
	if len(s.records) < collectorBatch {
		return 0, 0, nil
	}
	return s.flush()
}

// record returns an entry as the data model of logs has it. Its time is that of the flow's end.
func (s *collector) record(e *Entry) *logs.LogRecord {
	s.line = s.body(s.line[:0], e)
	r := &logs.LogRecord{
		TimeUnixNano: uint64(max(e.Start.Add(e.Duration).UnixNano(), 0)), ObservedTimeUnixNano: uint64(max(time.Now().UnixNano(), 0)),
		SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
		Body: otlp.Text("", string(s.line)).Value, EventName: "penstock.flow",
	}
	if e.Failed() {
		r.SeverityNumber, r.SeverityText = logs.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	}
	for i := range fields {
		f := &fields[i]
		if s.line = f.put(s.line[:0], e); len(s.line) == 0 {
			continue
		}
		text := string(s.line)
		kv := otlp.Text(f.name, text)
		if !f.text {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				kv = otlp.Integer(f.name, n)
			} else if x, err := strconv.ParseFloat(text, 64); err == nil {
				kv = otlp.Number(f.name, x)
			}
		}
		r.Attributes = append(r.Attributes, kv)
	}
	return r
}

// flush sends the records. The collector may refuse some, which then are failed ones.
func (s *collector) flush() (written, failed int, err error) {
	n := len(s.records)
	if n == 0 {
		return 0, 0, nil
	}
	s.client.Wait(s.ctx)
	request := s.source.Logs(s.records)
	refused := int64(0)
	err = otlp.Retry(s.ctx, collectorPatience, func(ctx context.Context) error {
		var err error
		refused, err = s.client.Logs(ctx, request)
		return err
	})
	clear(s.records)
	s.records = s.records[:0]
	switch {
	case refused > 0:
		failed = int(min(refused, int64(n)))
	case err != nil:
		failed = n
	}
	return n - failed, failed, err
}

func (s *collector) reopen() error { return nil }

// abort ends a request.
func (s *collector) abort() { s.cancel() }

func (s *collector) close() {
	s.cancel()
	s.client.Close()
}
