package otlp

import (
	"iter"
	"math"
	"os"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

// MaxPoints is the number of data points of one request. A collector accepts 20 MiB; so many have a tenth of it.
const MaxPoints = 10_000

const scope = "github.com/penstock/penstock"

// Text returns an attribute. What is not valid UTF-8 in it, which protobuf does not allow, becomes U+FFFD.
func Text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(value)}}}
}

// Integer returns an attribute.
func Integer(key string, n int64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}}
}

// Number returns an attribute.
func Number(key string, x float64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: x}}}
}

func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// A Source says who sends: the attributes of the resource, by the names of OpenTelemetry's semantic conventions.
type Source struct {
	Version  string
	Instance string // empty: the host's name
}

func (s Source) resource() *resource.Resource {
	host, _ := os.Hostname()
	instance := s.Instance
	if instance == "" {
		instance = host
	}
	list := []*common.KeyValue{Text("service.name", "penstock"), Text("service.version", s.Version), Text("service.instance.id", instance), Text("host.name", host)}
	return &resource.Resource{Attributes: list}
}

// Logs returns the request with records.
func (s Source) Logs(list []*logs.LogRecord) *collectorlogs.ExportLogsServiceRequest {
	return &collectorlogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource:  s.resource(),
		ScopeLogs: []*logs.ScopeLogs{{Scope: &common.InstrumentationScope{Name: scope, Version: s.Version}, LogRecords: list}},
	}}}
}

// EncodeRecords returns records as a process leaves them to the next one.
func EncodeRecords(list []*logs.LogRecord) ([]byte, error) {
	return proto.Marshal(&logs.ScopeLogs{LogRecords: list})
}

// DecodeRecords returns what EncodeRecords was given.
func DecodeRecords(text []byte) ([]*logs.LogRecord, error) {
	m := new(logs.ScopeLogs)
	if err := proto.Unmarshal(text, m); err != nil {
		return nil, err
	}
	return m.LogRecords, nil
}

// Metrics yields the requests with metrics as they are now, one after the other, each with at most MaxPoints. Counters count since
// start. Names, labels and units are those of Prometheus; families must not change meanwhile.
func (s Source) Metrics(families []*dto.MetricFamily, start, now time.Time) iter.Seq[*collectormetrics.ExportMetricsServiceRequest] {
	return func(yield func(*collectormetrics.ExportMetricsServiceRequest) bool) {
		b := builder{source: s, start: nanoseconds(start), now: nanoseconds(now)}
		for _, f := range families {
			for rest := f.GetMetric(); len(rest) > 0; {
				n := min(len(rest), MaxPoints-b.points)
				if m := b.metric(f, rest[:n]); m != nil {
					b.metrics, b.points = append(b.metrics, m), b.points+n
				}
				if rest = rest[n:]; b.points == MaxPoints && !yield(b.request()) {
					return
				}
			}
		}
		if b.points > 0 {
			yield(b.request())
		}
	}
}

// builder builds the next request.
type builder struct {
	source     Source
	start, now uint64 // of all data points
	metrics    []*metrics.Metric
	points     int // of metrics
}

func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// request returns the request, and begins the one after it.
func (b *builder) request() *collectormetrics.ExportMetricsServiceRequest {
	list := b.metrics
	b.metrics, b.points = nil, 0
	return &collectormetrics.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource:     b.source.resource(),
		ScopeMetrics: []*metrics.ScopeMetrics{{Scope: &common.InstrumentationScope{Name: scope, Version: b.source.Version}, Metrics: list}},
	}}}
}

// metric returns some series of a family; nil: they are of a kind that nothing here has.
func (b *builder) metric(f *dto.MetricFamily, series []*dto.Metric) *metrics.Metric {
	m := &metrics.Metric{Name: f.GetName(), Description: f.GetHelp()}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		sum := &metrics.Sum{AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, IsMonotonic: true}
		for _, s := range series {
			sum.DataPoints = append(sum.DataPoints, b.number(s, s.GetCounter().GetValue(), b.start))
		}
		m.Data = &metrics.Metric_Sum{Sum: sum}
	case dto.MetricType_GAUGE, dto.MetricType_UNTYPED:
		g := &metrics.Gauge{}
		for _, s := range series {
			g.DataPoints = append(g.DataPoints, b.number(s, s.GetGauge().GetValue()+s.GetUntyped().GetValue(), 0))
		}
		m.Data = &metrics.Metric_Gauge{Gauge: g}
	case dto.MetricType_HISTOGRAM:
		h := &metrics.Histogram{AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
		for _, s := range series {
			h.DataPoints = append(h.DataPoints, b.histogram(s))
		}
		m.Data = &metrics.Metric_Histogram{Histogram: h}
	case dto.MetricType_SUMMARY:
		sum := &metrics.Summary{}
		for _, s := range series {
			sum.DataPoints = append(sum.DataPoints, b.summary(s))
		}
		m.Data = &metrics.Metric_Summary{Summary: sum}
	default:
		return nil
	}
	return m
}

func attributes(s *dto.Metric) (list []*common.KeyValue) {
	for _, l := range s.GetLabel() {
		list = append(list, Text(l.GetName(), l.GetValue()))
	}
	return list
}

func (b *builder) number(s *dto.Metric, value float64, start uint64) *metrics.NumberDataPoint {
	p := &metrics.NumberDataPoint{Attributes: attributes(s), StartTimeUnixNano: start, TimeUnixNano: b.now}
	p.Value = &metrics.NumberDataPoint_AsDouble{AsDouble: value}
	return p
}

// histogram returns a data point. Prometheus' buckets have what those below them have, too; these do not.
func (b *builder) histogram(s *dto.Metric) *metrics.HistogramDataPoint {
	h := s.GetHistogram()
	sum := h.GetSampleSum()
	p := &metrics.HistogramDataPoint{Attributes: attributes(s), StartTimeUnixNano: b.start, TimeUnixNano: b.now, Count: h.GetSampleCount(), Sum: &sum}
	below := uint64(0)
	for _, k := range h.GetBucket() {
		if math.IsInf(k.GetUpperBound(), 1) {
			break // the last one is without a bound here
		}
		p.ExplicitBounds = append(p.ExplicitBounds, k.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, k.GetCumulativeCount()-min(below, k.GetCumulativeCount()))
		below = max(below, k.GetCumulativeCount())
	}
	if p.Count < below { // it was read while it counted
		p.Count = below
	}
	p.BucketCounts = append(p.BucketCounts, p.Count-below)
	return p
}

func (b *builder) summary(s *dto.Metric) *metrics.SummaryDataPoint {
	from := s.GetSummary()
	p := &metrics.SummaryDataPoint{Attributes: attributes(s), StartTimeUnixNano: b.start, TimeUnixNano: b.now, Count: from.GetSampleCount(), Sum: from.GetSampleSum()}
	for _, q := range from.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &metrics.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}
