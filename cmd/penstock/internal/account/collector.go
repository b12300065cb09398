package account

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/penstock/penstock/cmd/penstock/internal/otlp"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// collectorBatch is the number of records of one request.
	collectorBatch = 512
	// collectorMost is the number of records that a paused log has at most. Those of the ring and of a request have room.
	collectorMost = ringSize + collectorBatch
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
	ctx     context.Context // of requests
	cancel  context.CancelFunc
	sending chan struct{} // holds a token while a request is on its way

	mu     sync.Mutex
	wait   context.Context // of the pauses between requests; its end means that no further one begins, and what was not sent is kept
	pauses context.CancelCauseFunc
}

func newCollector(cfg spec.AccessLog, format formatter, version string) *collector {
	if cfg.Format == JSON {
		format, _ = newFormatter(collectorBody) // which is valid
	}
	s := &collector{client: otlp.New(cfg.OTLP), source: otlp.Source{Version: version, Instance: cfg.OTLP.Instance}, body: format, sending: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wait, s.pauses = context.WithCancelCause(s.ctx)
	return s
}

func (s *collector) put(e *Entry) (written, failed int, err error) {
	if len(s.records) >= collectorMost {
		return 0, 1, errPausedFull
	}
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
	for len(s.records) > 0 {
		batch := s.records[:min(len(s.records), collectorBatch)]
		n, refused, kept, failure := s.send(batch)
		if kept {
			break
		}
		written, failed = written+n, failed+refused
		if failure != nil {
			err = failure
		}
		rest := copy(s.records, s.records[len(batch):])
		clear(s.records[rest:])
		s.records = s.records[:rest]
	}
	return written, failed, err
}

// send sends one batch. It reports that the batch was kept, if the sink is paused before the collector has said what becomes of it.
func (s *collector) send(batch []*logs.LogRecord) (written, failed int, kept bool, err error) {
	wait := s.between()
	s.client.Wait(wait)
	if s.paused(wait) {
		return 0, 0, true, nil
	}
	request := s.source.Logs(batch)
	refused := int64(0)
	err = otlp.Retry(wait, collectorPatience, func(context.Context) (err error) {
		s.sending <- struct{}{}
		defer func() { <-s.sending }()
		if s.paused(wait) { // since this began to wait for its turn
			return &otlp.RetryError{Err: errPaused}
		}
		refused, err = s.client.Logs(s.ctx, request)
		return err
	})
	var again *otlp.RetryError
	switch {
	case errors.As(err, &again) && s.paused(wait):
		return 0, 0, true, nil
	case refused > 0:
		failed = int(min(refused, int64(len(batch))))
	case err != nil:
		failed = len(batch)
	}
	return len(batch) - failed, failed, false, err
}

// between returns the context of the pauses between requests.
func (s *collector) between() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait
}

// paused reports whether wait has ended by pause, and not by abort.
func (s *collector) paused(wait context.Context) bool {
	return wait.Err() != nil && context.Cause(wait) == errPaused
}

func (s *collector) reopen() error { return nil }

// abort ends a request.
func (s *collector) abort() { s.cancel() }

func (s *collector) close() {
	s.cancel()
	s.client.Close()
}
