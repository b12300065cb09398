package otlp

import (
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

func family(name string, kind dto.MetricType, series ...*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: proto.String(name), Help: proto.String("Help."), Type: kind.Enum(), Metric: series}
}

func labels(list ...string) (pairs []*dto.LabelPair) {
	for i := 0; i < len(list); i += 2 {
		pairs = append(pairs, &dto.LabelPair{Name: proto.String(list[i]), Value: proto.String(list[i+1])})
	}
	return pairs
}

func bucket(bound float64, n uint64) *dto.Bucket {
	return &dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCount: proto.Uint64(n)}
}

// Counters, gauges, histograms and summaries become what they are in OTLP, with the times since which they count.
func TestMetrics(t *testing.T) {
	start, now := time.Unix(100, 0), time.Unix(160, 5)
	list := slices.Collect(Source{Version: "v1", Instance: "relay-1"}.Metrics([]*dto.MetricFamily{
		family("c_total", dto.MetricType_COUNTER, &dto.Metric{Label: labels("listener", "web"), Counter: &dto.Counter{Value: proto.Float64(7)}}),
		family("g", dto.MetricType_GAUGE, &dto.Metric{Label: labels("member", "a\xffb"), Gauge: &dto.Gauge{Value: proto.Float64(2.5)}}),
		family("h", dto.MetricType_HISTOGRAM, &dto.Metric{Histogram: &dto.Histogram{SampleSum: proto.Float64(9), SampleCount: proto.Uint64(6), Bucket: []*dto.Bucket{bucket(1, 2), bucket(2, 5)}}}),
		family("s", dto.MetricType_SUMMARY, &dto.Metric{Summary: &dto.Summary{SampleSum: proto.Float64(3), SampleCount: proto.Uint64(2), Quantile: []*dto.Quantile{{Quantile: proto.Float64(0.5), Value: proto.Float64(1)}}}}),
		family("empty", dto.MetricType_COUNTER),
	}, start, now))
	if len(list) != 1 {
		t.Fatalf("%d requests", len(list))
	}
	if _, err := proto.Marshal(list[0]); err != nil {
		t.Fatal(err)
	}
	of := list[0].ResourceMetrics[0]
	attributes := map[string]string{}
	for _, a := range of.Resource.Attributes {
		attributes[a.Key] = a.Value.GetStringValue()
	}
	if attributes["service.name"] != "penstock" || attributes["service.version"] != "v1" || attributes["service.instance.id"] != "relay-1" {
		t.Errorf("the resource is %v", attributes)
	}
	got := of.ScopeMetrics[0].Metrics
	if len(got) != 4 {
		t.Fatalf("%d metrics", len(got))
	}
	c := got[0].GetSum()
	if p := c.DataPoints[0]; !c.IsMonotonic || c.AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE ||
		p.GetAsDouble() != 7 || p.StartTimeUnixNano != 100e9 || p.TimeUnixNano != 160e9+5 || p.Attributes[0].Key != "listener" || p.Attributes[0].Value.GetStringValue() != "web" {
		t.Errorf("the counter is %v", got[0])
	}
	if p := got[1].GetGauge().DataPoints[0]; p.GetAsDouble() != 2.5 || !utf8.ValidString(p.Attributes[0].Value.GetStringValue()) {
		t.Errorf("the gauge is %v", got[1])
	}
	h := got[2].GetHistogram().DataPoints[0]
	if h.Count != 6 || h.GetSum() != 9 || len(h.ExplicitBounds) != 2 || len(h.BucketCounts) != 3 || h.BucketCounts[0] != 2 || h.BucketCounts[1] != 3 || h.BucketCounts[2] != 1 {
		t.Errorf("the histogram is %v", h)
	}
	if p := got[3].GetSummary().DataPoints[0]; p.Count != 2 || p.Sum != 3 || p.QuantileValues[0].Value != 1 {
		t.Errorf("the summary is %v", p)
	}
}

// More series than a collector takes at once are several requests, with each series once.
func TestManyMetrics(t *testing.T) {
	var series []*dto.Metric
	for i := range 2*MaxPoints + 7 {
		series = append(series, &dto.Metric{Counter: &dto.Counter{Value: proto.Float64(float64(i))}})
	}
	list := slices.Collect(Source{}.Metrics([]*dto.MetricFamily{family("a_total", dto.MetricType_COUNTER, series[:5]...), family("b_total", dto.MetricType_COUNTER, series[5:]...)}, time.Unix(0, 0), time.Unix(1, 0)))
	next := 0.0
	for i, r := range list {
		n := 0
		for _, m := range r.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			for _, p := range m.GetSum().DataPoints {
				if p.GetAsDouble() != next {
					t.Fatalf("request %d has %v, want %v", i, p.GetAsDouble(), next)
				}
				next++
				n++
			}
		}
		if n > MaxPoints || n == 0 {
			t.Errorf("request %d has %d data points", i, n)
		}
	}
	if int(next) != len(series) || len(list) != 3 {
		t.Errorf("%v of %d series in %d requests", next, len(series), len(list))
	}
}
