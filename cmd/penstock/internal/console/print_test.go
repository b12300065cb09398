package console

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// printed is what print writes to a terminal of so many columns, or to a pipe.
func printed(t *testing.T, width int, print func(out)) string {
	t.Helper()
	f, said := capture(t)
	print(out{File: f, width: width})
	return said()
}

func TestPrinted(t *testing.T) {
	d := newDaemon()
	failed := d.status
	failed.Config.Failed = &api.FailedReload{Time: epoch, Errors: []api.ConfigError{
		{Source: "/etc/penstock/penstock.yaml", Line: 3, Column: 5, Message: "unknown key lisen", Allowed: "listen, routes"}, {Message: "no group"}}}
	flows := api.Flows{Matched: 5, Total: 1234567}
	for i := range d.flows {
		f := d.flows[i].Flow
		f.Rate = float64(f.ID) * 1e6
		flows.Flows = append(flows.Flows, f)
	}
	changes := []api.MemberDifference{
		{Group: "web", Member: "tcp://10.0.0.1:80", What: "changed", Fields: []api.FieldDifference{{Name: "weight", File: "1", Running: "10"}, {Name: "state", File: "drain", Running: "enable"}}},
		{Group: "web", Member: "tcp://10.0.0.2:80", What: "added", Fields: []api.FieldDifference{{Name: "to", Running: "tcp://10.0.0.2:80"}}},
		{Group: "web", Member: "tcp://10.0.0.3:80", What: "removed", Fields: []api.FieldDifference{{Name: "to", File: "tcp://10.0.0.3:80"}}},
		{Group: "other", Member: "udp://10.0.0.53:53", What: "added"},
	}
	ended := api.EndedFlows{Flows: endedFlows(), Kept: 1234}
	datagrams := d.flows[0]
	datagrams.Kind, datagrams.ClientTCP, datagrams.UpstreamTCP, datagrams.Peer = "datagram", nil, nil, datagrams.Client
	datagrams.Up.Datagrams, datagrams.Down.DatagramsDropped = 7, 2
	zones := api.Group{Name: "mesh", Balance: "maglev", Lookups: []api.Lookup{
		{Name: "etcd /services/mesh/", Registry: "main", Members: 3, Failures: 2, Time: epoch, GoodTime: epoch.Add(-time.Hour), Error: "connection refused"},
		{Name: "consul mesh", Registry: "dc1", Error: "no answer", Failures: 1}}}
	for i := range 3 {
		m := d.groups[0].Members[0]
		m.Name, m.Address, m.Zone, m.Priority, m.Draining = fmt.Sprint("m", i), fmt.Sprintf("tcp://10.1.0.%d:80", i), []string{"eu-1a", "eu-1b", ""}[i], i/2, i == 1
		if m.Draining {
			m.State = "drained"
		}
		zones.Members = append(zones.Members, m)
	}
	away := d.status
	away.Groups = slices.Clone(away.Groups)
	away.Groups[0].LookupError, away.Groups[0].LookupGoodTime = "etcd /services/mesh/: connection refused", away.Time.Add(-time.Hour)
	for _, c := range []struct {
		name  string
		print func(out)
	}{
		{"groups-zones", func(o out) { printGroups(o, api.Groups{Groups: []api.Group{zones}}, nil, epoch.Add(25*time.Hour)) }},
		{"status-away", func(o out) { printStatus(o, away) }},
		{"status", func(o out) { printStatus(o, d.status) }},
		{"status-failed", func(o out) { printStatus(o, failed) }},
		{"status-empty", func(o out) { printStatus(o, api.Status{}) }},
		{"groups", func(o out) { printGroups(o, api.Groups{Groups: d.groups}, nil, epoch.Add(25*time.Hour)) }},
		{"groups-changed", func(o out) { printGroups(o, api.Groups{Groups: d.groups}, changes, epoch.Add(25*time.Hour)) }},
		{"flows", func(o out) { printFlows(o, flows, false) }},
		{"flows-rate", func(o out) { printFlows(o, flows, true) }},
		{"flows-none", func(o out) { printFlows(o, api.Flows{}, false) }},
		{"ended", func(o out) { printEnded(o, ended, epoch.Add(time.Hour)) }},
		{"ended-none", func(o out) { printEnded(o, api.EndedFlows{Kept: 512}, epoch) }},
		{"flow", func(o out) { printFlow(o, &d.flows[0], o.width) }},
		{"flow-datagrams", func(o out) { printFlow(o, &datagrams, o.width) }},
		{"diff", func(o out) { printDiff(o, d.diff) }},
		{"diff-none", func(o out) { printDiff(o, api.Diff{Hash: d.diff.Hash}) }},
		{"members", func(o out) { printMembers(o, "web", d.groups[0].Members) }},
	} {
		t.Run(c.name, func(t *testing.T) { golden(t, c.name+".golden", printed(t, 0, c.print)) })
	}
	for _, c := range []struct {
		name  string
		print func(out)
	}{
		{"ended-80", func(o out) { printEnded(o, ended, epoch.Add(time.Hour)) }},
		{"groups-changed-80", func(o out) { printGroups(o, api.Groups{Groups: d.groups}, changes, epoch.Add(25*time.Hour)) }},
		{"flows-80", func(o out) { printFlows(o, flows, false) }},
		{"groups-80", func(o out) { printGroups(o, api.Groups{Groups: d.groups}, nil, epoch.Add(25*time.Hour)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := printed(t, 80, c.print)
			for line := range strings.Lines(got) {
				if len(line) > 81 && !strings.HasPrefix(line, "web:") {
					t.Errorf("%d cells: %s", len(line)-1, line)
				}
			}
			golden(t, c.name+".golden", got)
		})
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{volume(0), "0 B"}, {volume(1023), "1023 B"}, {volume(1023.6), "1.0 KiB"}, {volume(1536), "1.5 KiB"}, {volume(99.96 * 1024), "100 KiB"},
		{volume(1023.7 * 1024), "1.0 MiB"}, {volume(math.MaxInt64), "8.0 EiB"}, {rate(117 << 20), "117 MiB/s"},
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(-1234567), "-1,234,567"}, {count(-123), "-123"}, {count(math.MinInt64), "-9,223,372,036,854,775,808"},
		{perSecond(0), "0"}, {perSecond(0.5), "0.5"}, {perSecond(9.96), "10"}, {perSecond(12345.4), "12,345"},
		{age(-5), "0s"}, {age(59.9), "59s"}, {age(192), "3m12s"}, {age(3600), "1h0m"}, {age(86400*12 + 3*3600), "12d3h"},
		{span(0), "0"}, {span(0.000085), "85us"}, {span(0.00042), "420us"}, {span(0.0012), "1.2ms"}, {span(0.34), "340ms"}, {span(1), "1s"}, {span(1.25), "1.25s"}, {span(100), "1m40s"},
		{shorten("short", 5), "short"}, {shorten("192.0.2.10:50000", 10), "192.0.~000"}, {shorten("abc", 1), "a"}, {shorten("abc", 0), ""}, {shorten("abc", -1), ""},
		{printable("plain"), "plain"}, {printable("\x1b[31m\n\u202e\xff"), `\x1b[31m\x0a\u202e\ufffd`},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// No line is too long, and where there is no bound nothing is missing.
func TestTableFits(t *testing.T) {
	table := newTable("~NAME", ">N", "~OTHER")
	table.add(strings.Repeat("a", 100), "12345", strings.Repeat("b", 50))
	for width := range 200 {
		for _, line := range table.lines(width) {
			if width > 0 && len(line) > width {
				t.Fatalf("%d cells of %d: %q", len(line), width, line)
			}
		}
	}
	if got := len(table.lines(0)[1]); got != 100+5+50+2*gap {
		t.Errorf("unbounded: %d cells", got)
	}
}

func TestFilterLine(t *testing.T) {
	for line, want := range map[string]string{
		"":                                       "",
		"10.1.2.3":                               "from=10.1.2.3/32",
		"2001:db8::/32 group=web":                "from=2001:db8::/32 group=web",
		"--min-bytes=1MiB older=5m state=queued": "state=queued older=5m0s min-bytes=1048576",
	} {
		f, err := parseFilter(line)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if got := filterLine(&f); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"nonsense", "gruop=web", "min-bytes=lots", "min-bytes=9999999TiB", "older=-5m", "state=dead", "from=10.0.0.0/33"} {
		if f, err := parseFilter(line); err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%q: %+v, %v", line, f, err)
		}
	}
}

func FuzzFilterLine(f *testing.F) {
	f.Add("10.0.0.0/8 group=web min-bytes=1MiB older=5m")
	f.Add("--state=relaying =x from=")
	f.Fuzz(func(t *testing.T, line string) {
		filter, err := parseFilter(line)
		if err != nil {
			return
		}
		again, err := parseFilter(filterLine(&filter))
		if err != nil || again != filter {
			t.Errorf("%q: %+v, then %+v, %v", line, filter, again, err)
		}
	})
}
