package admin

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// scrape reads the exposition over the Unix socket, as text and parsed.
func scrape(t *testing.T, r *rig) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	got := r.ask("GET", "/metrics", "")
	if got.status != 200 {
		t.Fatalf("%d: %s", got.status, got.body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(got.body))
	if err != nil {
		t.Fatal(err)
	}
	return got.body, families
}

// Names follow the conventions of Prometheus, and every metric of the table is there.
func TestMetricsFollowConventions(t *testing.T) {
	r := newRig(t, &synthetic{flows: 3, members: 3})
	text, families := scrape(t, r)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, m := range descriptions() {
		f := families[m.name]
		if f == nil {
			t.Errorf("%s is missing", m.name)
			continue
		}
		if f.GetType() != m.kind || f.GetHelp() != m.help {
			t.Errorf("%s: %v %q", m.name, f.GetType(), f.GetHelp())
		}
		for _, series := range f.Metric {
			var names []string
			for _, l := range series.Label {
				names = append(names, l.GetName())
			}
			if fmt.Sprint(names) != fmt.Sprint(m.labels) {
				t.Errorf("%s has labels %v, and the table %v", m.name, names, m.labels)
			}
		}
	}
	if families["go_goroutines"] == nil || families["process_start_time_seconds"] == nil {
		t.Error("the metrics of the Go runtime or of the process are missing")
	}
}

// What a registry checks in every scrape: no series twice, no metric that
// contradicts its family, valid names.
func TestMetricsAreWellFormed(t *testing.T) {
	e := newExposition()
	for round := range 3 { // an exposition is used again
		e.fill(&synthetic{flows: 3, members: 10})
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(reprint(e.filled()))
		if _, err := registry.Gather(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		e.clear()
	}
}

// reprint gives families to a registry, metric by metric, so that it checks them.
type reprint []*dto.MetricFamily

func (reprint) Describe(chan<- *prometheus.Desc) {}

func (families reprint) Collect(out chan<- prometheus.Metric) {
	for _, f := range families {
		for _, m := range f.Metric {
			labels := prometheus.Labels{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			out <- printed{prometheus.NewDesc(f.GetName(), f.GetHelp(), nil, labels), m}
		}
	}
}

type printed struct {
	desc *prometheus.Desc
	m    *dto.Metric
}

func (p printed) Desc() *prometheus.Desc { return p.desc }
func (p printed) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge, out.Histogram, out.Summary, out.Untyped = p.m.Label, p.m.Counter, p.m.Gauge, p.m.Histogram, p.m.Summary, p.m.Untyped
	return nil
}

// The numbers are those of the source.
func TestMetricsTellTheNumbers(t *testing.T) {
	r := newRig(t, &synthetic{flows: 3, members: 3})
	text, _ := scrape(t, r)
	const of = `listener="web",route="default",group="backends",member="tcp://10.0.0.1:80"`
	for _, line := range []string{
		`penstock_ready 1`,
		`penstock_flows_open{` + of + `} 2`,
		`penstock_flows_ended_total{` + of + `,cause="upstream-reset"} 1`,
		`penstock_flow_bytes_total{` + of + `,direction="up"} 1.073741824e+09`,
		`penstock_flow_bytes_total{` + of + `,direction="down"} 2.147483648e+09`,
		`penstock_connect_duration_seconds_bucket{listener="web",route="default",group="backends",le="0.01"} 6`,
		`penstock_connect_duration_seconds_bucket{listener="web",route="default",group="backends",le="+Inf"} 30`,
		`penstock_connect_duration_seconds_sum{listener="web",route="default",group="backends"} 40`,
		`penstock_refusals_total{listener="web",reason="denied"} 9`,
		`penstock_member_up{group="backends",member="tcp://10.0.0.1:80",address="tcp://10.0.0.1:80"} 0`,
		`penstock_group_members{group="backends",state="down"} 1`,
		`penstock_lookup_success{group="backends",name="tcp://app.test:80"} 0`,
		`penstock_lookup_failures_total{group="backends",name="tcp://app.test:80"} 3`,
		`penstock_group_members{group="empty",state="up"} 0`,
		`penstock_loop_busy_seconds_total{loop="0"} 1.5`,
		`penstock_flow_directions_total{path="copy",why="small reads"} 5`,
		`penstock_config_reloads_total{result="failure"} 1`,
		`penstock_listener_open{listener="dns"} 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(text, account.Gone) {
		t.Error("the past of members that are gone has a series")
	}
	req, err := http.NewRequest("GET", "http://localhost/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	if got := r.do(r.unix, req); !strings.HasSuffix(got.body, "# EOF\n") || !strings.HasPrefix(got.header.Get("Content-Type"), "application/openmetrics-text") {
		t.Errorf("OpenMetrics: %s", got.header)
	}
}

// A client that accepts gzip gets the same text, compressed; one that refuses it does not.
func TestMetricsAreCompressed(t *testing.T) {
	r := newRig(t, &synthetic{flows: 3, members: 50})
	for accept, want := range map[string]bool{
		"gzip": true, "deflate, gzip;q=0.8, *": true, "GZIP; q=1.0": true, "identity": false, "gzip;q=0": false, "gzip; q=0.000, br": false, "x-gzip2": false, "": false,
	} {
		req, err := http.NewRequest("GET", "http://localhost/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", accept) // so the client does not decompress
		got := r.do(r.unix, req)
		body := io.Reader(strings.NewReader(got.body))
		if zipped := got.header.Get("Content-Encoding") == "gzip"; zipped != want || !strings.Contains(got.header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("%q: %v", accept, got.header)
		} else if zipped {
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		if err != nil || !strings.Contains(string(text), "\npenstock_ready 1\n") || !strings.Contains(string(text), "\npenstock_log_lines_left_out_total{log=\"log\"} 5\n") {
			t.Errorf("%q: %v, %d bytes", accept, err, len(text))
		}
	}
}

// BenchmarkScrape is the whole handler, of a source that is not the daemon's.
func BenchmarkScrape(b *testing.B) {
	for _, c := range []struct {
		members  int
		encoding string
	}{{100, "identity"}, {10_000, "identity"}, {10_000, "gzip"}} {
		members, encoding := c.members, c.encoding
		b.Run(fmt.Sprintf("members=%d/encoding=%s", members, encoding), func(b *testing.B) {
			source := &fixed{Source: &synthetic{flows: 10, members: members}}
			source.counters, source.groups = source.Source.Counters(), source.Source.Groups()
			server := New(source, Config{})
			req := httptest.NewRequest("GET", "/metrics", nil)
			req.Header.Set("Accept-Encoding", encoding)
			var w counting
			b.ReportAllocs()
			for b.Loop() {
				w = counting{header: http.Header{}}
				if err := server.metrics(&w, req); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(w.lines), "lines")
			b.ReportMetric(float64(w.bytes), "bytes")
		})
	}
}

// fixed gives the same answers again, so that a benchmark does not measure how they are made up.
type fixed struct {
	Source
	counters Counters
	groups   []api.Group
}

func (f *fixed) Counters() Counters  { return f.counters }
func (f *fixed) Groups() []api.Group { return f.groups }

type counting struct {
	header       http.Header
	bytes, lines int
}

func (c *counting) Header() http.Header { return c.header }
func (c *counting) WriteHeader(int)     {}
func (c *counting) Write(b []byte) (int, error) {
	c.bytes += len(b)
	c.lines += bytes.Count(b, []byte("\n"))
	return len(b), nil
}
