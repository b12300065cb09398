package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// make otel sets it: a collector takes long to build.
var otelcol = flag.String("otelcol", "", "send metrics and flows to the OpenTelemetry collector `PROGRAM`")

// A real collector understands the metrics of a worker and each of its flows.
func TestOpenTelemetryCollector(t *testing.T) {
	if *otelcol == "" {
		t.Skip("a collector takes long to build; make otel does")
	}
	l := testnet.Listen(t, "tcp4")
	at := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	config, printed := filepath.Join(dir, "otelcol.yaml"), filepath.Join(dir, "printed")
	if err := os.WriteFile(config, fmt.Appendf(nil, `receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [debug]}
    logs: {receivers: [otlp], exporters: [debug]}
`, at), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(printed)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	collector := exec.Command(*otelcol, "--config", "file:"+config)
	collector.Stdout, collector.Stderr = out, out
	if err := collector.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		collector.Process.Kill()
		collector.Wait()
	}()
	testwait.Until(t, "the collector accepts", func() bool {
		c, err := net.Dial("tcp4", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	one := speak(t, "one")
	d := runFile(t, `
access-log: {to: otlp}
otlp: {to: "http://{1}", every: 1s, instance: relay-7}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`, one.url(), at)
	var clients []string
	for range 700 { // more than one request has
		c := d.to("a")
		name(t, c)
		clients = append(clients, c.LocalAddr().String())
		c.Close()
	}
	text := func() string {
		b, err := os.ReadFile(printed)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	testwait.Until(t, "the collector has all flows and their number", func() bool {
		s := text()
		return strings.Count(s, "EventName: penstock.flow") >= len(clients) && strings.Contains(s, "\nValue: 700.000000\n")
	})
	s := text()
	for _, c := range clients {
		if n := strings.Count(s, "-> client: Str(tcp://"+c+")\n"); n != 1 {
			t.Errorf("%d records of the flow from %s", n, c)
		}
	}
	for _, want := range []string{"-> service.instance.id: Str(relay-7)", "-> Name: penstock_member_connects_total\n", "-> Name: penstock_first_byte_duration_seconds\n", "AggregationTemporality: Cumulative", "-> Name: go_goroutines\n"} {
		if !strings.Contains(s, want) {
			t.Errorf("the collector has not printed %q", want)
		}
	}
}
