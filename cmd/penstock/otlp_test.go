package main

import (
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// otlpCollector notes what it is sent.
type otlpCollector struct {
	mu       sync.Mutex
	flows    map[string]int // records, by the flow's client
	connects float64        // the last value of penstock_member_connects_total of the member one
	since    uint64         // since when that counts
	instance string
	dropped  float64 // penstock_log_lines_dropped_total of the access log
	less     bool    // it has decreased, or counts since another time
}

func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b, err := io.ReadAll(z)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/logs":
		m := new(collectorlogs.ExportLogsServiceRequest)
		err = errors.Join(err, proto.Unmarshal(b, m))
		for _, record := range m.GetResourceLogs()[0].ScopeLogs[0].LogRecords {
			for _, a := range record.Attributes {
				if a.Key == "client" {
					c.flows[strings.TrimPrefix(a.Value.GetStringValue(), "tcp://")]++
				}
			}
		}
	case "/v1/metrics":
		m := new(collectormetrics.ExportMetricsServiceRequest)
		err = errors.Join(err, proto.Unmarshal(b, m))
		of := m.GetResourceMetrics()[0]
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.instance.id" {
				c.instance = a.Value.GetStringValue()
			}
		}
		for _, metric := range of.ScopeMetrics[0].Metrics {
			if metric.Name == "penstock_log_lines_dropped_total" {
				for _, p := range metric.GetSum().DataPoints {
					if p.Attributes[0].Value.GetStringValue() == "access" {
						c.dropped = p.GetAsDouble()
					}
				}
			}
			if metric.Name == "penstock_member_connects_total" {
				p := metric.GetSum().DataPoints[0]
				c.less = c.less || p.GetAsDouble() < c.connects || c.since != 0 && p.StartTimeUnixNano != c.since
				c.connects, c.since = p.GetAsDouble(), p.StartTimeUnixNano
			}
		}
	default:
		err = errors.New(r.URL.Path)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// A collector gets each flow once and all metrics from a worker in its sandbox, which go on in the next worker; it may be away for a while, and
// be another one after a reload.
func TestCollector(t *testing.T) {
	t.Parallel()
	one := speak(t, "one")
	serve := func(l net.Listener, c *otlpCollector) *http.Server {
		s := &http.Server{Handler: c}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		return s
	}
	first, second := &otlpCollector{flows: map[string]int{}}, &otlpCollector{flows: map[string]int{}}
	l, l2 := testnet.Listen(t, "tcp4"), testnet.Listen(t, "tcp4")
	at := l.Addr().String()
	s := serve(l, first)
	serve(l2, second)
	text := `access-log: {to: otlp}
otlp: {to: "http://{1}", every: 1s, instance: relay-7}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`
	if os.Getuid() == 0 {
		text += "sandbox: {user: '65534:65534'}\n"
	}
	k := runKept(t, text, one.url(), at)
	var clients []string
	flow := func() {
		t.Helper()
		c := k.to("a")
		name(t, c)
		clients = append(clients, c.LocalAddr().String())
		c.Close()
	}
	// has waits until collectors have each flow, once, and the last of them the number of all.
	has := func(collectors ...*otlpCollector) {
		t.Helper()
		last := collectors[len(collectors)-1]
		records := func(client string) (n int) {
			for _, c := range collectors {
				c.mu.Lock()
				n += c.flows[client]
				c.mu.Unlock()
			}
			return n
		}
		testwait.Until(t, "the collector has all flows and their number", func() bool {
			last.mu.Lock()
			counted := last.connects == float64(len(clients))
			last.mu.Unlock()
			return counted && !slices.ContainsFunc(clients, func(client string) bool { return records(client) == 0 })
		})
		for _, client := range clients {
			if n := records(client); n != 1 {
				t.Errorf("%d records of the flow from %s", n, client)
			}
		}
		last.mu.Lock()
		defer last.mu.Unlock()
		if last.less || last.instance != "relay-7" {
			t.Errorf("connects have decreased: %v; the instance is %q", last.less, last.instance)
		}
	}
	for range 5 {
		flow()
	}
	has(first)
	k.crash()
	flow()
	flow()
	has(first)

	// It is away for a while.
	s.Close()
	flow()
	k.line("metrics cannot be sent to the collector")
	l, err := net.Listen("tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	serve(l, first)
	k.line("metrics are sent to the collector again")
	has(first)

	// Another one. The sandbox of this worker does not have its port, so that another worker takes over, while this one still accepts.
	k.write(t, text+keeperOfTests, one.url(), l2.Addr().String())
	k.reload()
	testwait.Until(t, "the other collector has a flow", func() bool {
		flow()
		second.mu.Lock()
		defer second.mu.Unlock()
		return len(second.flows) > 0
	})
	has(first, second)
}
