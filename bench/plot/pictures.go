package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/internal/report"
)

// picture is one file. draw gets the results of all its parts.
type picture struct {
	name  string
	parts []string
	draw  func(path string, res report.Result) error
}

// The figures by which loads are judged.
var (
	bulkCost = []panel{
		{"bulk16k", "bulk, 16 KiB writes", "CPU ms per GB", "cpu-s/GB", 1000},
		{"bulk128k", "bulk, 128 KiB writes", "CPU ms per GB", "cpu-s/GB", 1000},
		{"bulk1m", "bulk, 1 MiB writes", "CPU ms per GB", "cpu-s/GB", 1000},
		{"bulk16kx4", "bulk, 16 KiB, 4 connections", "CPU ms per GB", "cpu-s/GB", 1000},
	}
	messageCost = []panel{
		{"pingpong1", "64 B and echo, 1 connection", "CPU µs per round trip", "cpu-us/op", 1},
		{"pingpong64", "64 B and echo, 64 connections", "CPU µs per round trip", "cpu-us/op", 1},
		{"pingpong1000", "64 B and echo, 1,000 connections", "CPU µs per round trip", "cpu-us/op", 1},
		{"connect", "connect, 64 B and echo, close", "CPU µs per connection", "cpu-us/op", 1},
	}
	// Rows of the tables that are in no picture.
	manyCost = []panel{
		{"bulk128kx64", "bulk, 128 KiB, 64 connections", "CPU ms per GB", "cpu-s/GB", 1000},
		{"pingpong4kx64", "4 KiB and echo, 64 connections", "CPU µs per round trip", "cpu-us/op", 1},
		{"pingpong16kx64", "16 KiB and echo, 64 connections", "CPU µs per round trip", "cpu-us/op", 1},
	}
	idleCost = []panel{
		{"idle", "idle connections", "KB of memory each", "KB/conn", 1},
	}
	udpCost = []panel{
		{"udp1200", "4 flows, 1,200 B", "CPU µs per datagram", "cpu-us/op", 1},
		{"udp100", "4 flows, 100 B", "CPU µs per datagram", "cpu-us/op", 1},
		{"udpgso1200", "4 flows, 1,200 B, sent with GSO", "CPU µs per datagram", "cpu-us/op", 1},
		{"udpping64", "200 B and echo, 64 flows", "CPU µs per round trip", "cpu-us/op", 1},
		{"udpsession", "a new flow for each 200 B and echo", "CPU µs per flow", "cpu-us/op", 1},
	}
)

var pictures = []picture{
	{"relay-tcp", []string{"relay-one-cpu-bulk", "relay-one-cpu-messages", "relay-idle"}, bars(
		"TCP: what a relay costs",
		"CPU time (user + system) and memory of the relay's processes. Shorter bars are better.",
		slices.Concat(bulkCost, messageCost, idleCost))},
	{"relay-udp", []string{"relay-one-cpu-udp"}, bars(
		"UDP: what a relay costs",
		"CPU time (user + system) of the relay's processes. Shorter bars are better; losses are noted next to the bar.",
		udpCost)},
	{"relay-latency", []string{"relay-one-cpu-messages", "relay-one-cpu-udp"}, ranges(
		"Latency: round trips through the relay",
		"The bar ends at the median, the line behind it at the 99th percentile. Shorter is better. The clients send as fast as answers come.",
		[]panel{
			{"pingpong1", "TCP, 1 connection", "µs", "", 1},
			{"pingpong64", "TCP, 64 connections", "ms", "", 1e-3},
			{"pingpong1000", "TCP, 1,000 connections", "ms", "", 1e-3},
			{"connect", "TCP, connect to echo, 32 at a time", "ms", "", 1e-3},
			{"udpping64", "UDP, 64 flows", "ms", "", 1e-3},
			{"udpsession", "UDP, new flows, 32 at a time", "ms", "", 1e-3},
		})},
	{"relay-connections", []string{"relay-one-cpu-connections"}, curves(
		"Cost as connections grow",
		"64 B and their echo on every connection at once. Lower is better.",
		"pingpong",
		[]curve{
			{"CPU µs per round trip", "cpu-us/op", 1, false},
			{"memory of the relay, MB (logarithmic)", "KB-RSS", 1. / 1024, true},
		})},
}

// panel is one load with one figure; scale converts from the raw unit.
type panel struct {
	load, title, unit, raw string
	scale                  float64
}

type curve struct {
	title, raw string
	scale      float64
	log        bool // whether the figure's axis is logarithmic; that of the connections always is
}

// relay says how a peer is shown. If a relay has two setups, the files of a load have the better
// one or both, and the better one is drawn.
type relay struct {
	name  string
	peers []string
}

var relays = []relay{
	{"penstock", []string{"penstock"}},
	{"HAProxy", []string{"haproxy", "haproxy-auto"}},
	{"nginx", []string{"nginx", "nginx-rcvbuf"}},
	{"Envoy", []string{"envoy"}},
	{"Go io.Copy", []string{"gocopy"}},
}

// foot returns the machine, the versions and the conditions of a measurement.
func foot(res report.Result) string {
	c := res.Config
	parts := []string{c["cpu"], "Linux " + c["kernel"], "all processes on CPU " + c["cpus"], c["congestion-control"], "loopback", "medians of " + c["rounds"] + " rounds", "commit " + c["commit"], c["date"][:min(10, len(c["date"]))]}
	var versions []string
	for _, r := range relays[1:4] {
		for _, peer := range r.peers {
			if v := version(c[peer]); v != "" {
				versions = append(versions, r.name+" "+v)
				break
			}
		}
	}
	return strings.Join(parts, ", ") + "\n" + strings.Join(versions, ", ") + fmt.Sprintf(", %s", c["go"])
}

// version finds the version number in the output of a relay. Of what a distribution adds to it, nothing is in it.
func version(s string) string {
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '/' }) {
		number, more, _ := strings.Cut(f, "-")
		if !strings.Contains(number, ".") || strings.Trim(number, "0123456789.") != "" {
			continue
		}
		if strings.HasPrefix(more, "dev") { // a development version, such as 3.5-dev5-50872da
			dev, _, _ := strings.Cut(more, "-")
			number += "-" + dev
		}
		return number
	}
	return ""
}
