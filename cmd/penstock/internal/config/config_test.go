package config

import (
	"flag"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var update = flag.Bool("update", false, "write the golden files and the reference")

// examples are the files of docs/examples.
func examples(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../../../docs/examples/*.yaml")
	inFolders, err2 := filepath.Glob("../../../../docs/examples/*/penstock.yaml")
	if err != nil || err2 != nil || len(files) < 5 || len(inFolders) < 1 {
		t.Fatalf("%d and %d examples, %v, %v", len(files), len(inFolders), err, err2)
	}
	return append(files, inFolders...)
}

func TestExamples(t *testing.T) {
	for _, path := range examples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, warnings, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			// Whoever replaces the packaged file by an example must still reach the daemon: penstock reload, split, status.
			if strings.HasSuffix(filepath.Dir(path), "examples") && len(c.Admin.Listen) == 0 {
				t.Error("no admin.listen")
			}
			if c.Source != path || len(c.Listeners) == 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}

func parsed(t testing.TB, text string) *spec.Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The smallest file, with everything that it does not say.
func TestDefaults(t *testing.T) {
	const text = "listeners: {web: {listen: tcp://:80, to: tcp://127.0.0.1:81}}"
	c := parsed(t, text)
	timeouts := spec.Timeouts{Connect: 5 * time.Second, HalfClosed: time.Minute}
	socket := spec.Socket{KeepAlive: 2 * time.Minute}
	removed := spec.LiveFlows{What: "keep", After: 30 * time.Second}
	to := spec.Endpoint{Kind: spec.TCP, Host: "127.0.0.1", Port: 81}
	group := &spec.Group{
		Name: "tcp://127.0.0.1:81", Balance: "round-robin", Zone: "none", Members: []spec.Member{{Name: to.String(), To: to, Weight: 1}},
		Down: removed, Up: removed, Lookups: spec.Lookups{Keep: 30 * time.Second, MaxMembers: 10000, Vanish: 0.5},
		Timeouts: spec.GroupTimeouts{Connect: 5 * time.Second}, Retries: 2, Queue: spec.Queue{Timeout: 5 * time.Second},
		Dial: spec.Dial{TCP: socket},
	}
	want := &spec.Config{
		Source:    "test.yaml",
		Text:      []byte(text),
		Log:       spec.Log{Level: "info", Format: "auto", Flows: "failed"},
		AccessLog: spec.AccessLog{Format: "json", Mode: 0o640},
		OTLP:      spec.OTLP{Every: time.Minute},
		Admin:     spec.Admin{Mode: 0o600},
		Drain:     30 * time.Second,
		Names:     spec.NameLimits{Names: 8192, Failures: 2048, MinAge: time.Second, MaxAge: time.Hour, Lookups: 64, Queue: 1024, PerSource: 32, Timeout: 10 * time.Second},
		Fleet:     spec.Fleet{DrainGrace: spec.DefaultDrainGrace},
		Sandbox:   spec.Sandbox{Mode: "on"},
		Groups:    []*spec.Group{group},
		Listeners: []*spec.Listener{{
			Name: "web", Listen: spec.Endpoint{Kind: spec.TCP, Port: 80},
			Sniff: spec.Sniff{Max: 64 << 10, Timeout: 5 * time.Second}, Timeouts: timeouts, TCP: socket, Unreachable: "next", TOS: "none",
			To: spec.Only(group), SplitBy: spec.SplitRandom, Default: &spec.Route{Name: "default", To: spec.Only(group), SplitBy: spec.SplitRandom, Removed: removed, Timeouts: timeouts},
		}},
	}
	want.Written = want.Text
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\n %+v\n %+v\nwant %+v\n %+v\n %+v", c, c.Listeners[0], c.Groups[0], want, want.Listeners[0], group)
	}
}

// Groups that find members in xDS panic as Envoy does, unless they say something else.
func TestPanicDefault(t *testing.T) {
	for group, want := range map[string]float64{
		`{discover: [{xds: web}]}`:                             0.5,
		`{discover: [{dns: a.example, port: 1}, {xds: web}]}`:  0.5,
		`{discover: [{xds: web}], panic: 0}`:                   0,
		`{discover: [{xds: web}], panic: 0.3, zone: weighted}`: 0.3,
		`{discover: [{etcd: /web/}]}`:                          0,
		`{members: ["tcp://127.0.0.1:1"]}`:                     0,
	} {
		c := parsed(t, "listeners: {web: {listen: tcp://:80, to: web}}\nregistries: {a: {xds: http://127.0.0.1:1}, b: {etcd: http://127.0.0.1:2}}\ngroups: {web: "+group+"}")
		if got := c.Groups[0].Panic; got != want {
			t.Errorf("%s: panic %v, want %v", group, got, want)
		}
	}
}

// Defaults go to listeners and groups key by key, and from a listener to its
// routes.
func TestInherit(t *testing.T) {
	c := parsed(t, `
listeners:
  web:
    listen: tcp://:80
    timeouts: {life: 1h}
    limits: {bandwidth: 1MiB/s}
    removed: {live-flows: close}
    routes:
      - {from: 10.0.0.1, to: db, timeouts: {idle: never}}
      - {name: slow, from: 10.0.0.2, to: db, bandwidth: 1KiB/s, removed: {live-flows: keep}}
    to: "echo:"
  dns: {listen: udp://:53, to: "udp://[::1]:53"}
  log: {listen: unixgram:@log, to: "discard:", timeouts: {idle: never}}
groups:
  db: {members: [tcp://db:1], timeouts: {retries: 9s}, check: none, tcp: {nagle: true}}
defaults:
  timeouts: {connect: 2s, first-byte: 3s, half-closed: never}
  tcp: {keepalive: 7s, keepalive-count: 3}
  check: {tcp: {every: 9s}}
  eject: {}
  retries: 0
`)
	web, dns, log := c.Listeners[0], c.Listeners[1], c.Listeners[2]
	timeouts := spec.Timeouts{Connect: 2 * time.Second, FirstByte: 3 * time.Second, Life: time.Hour}
	if web.Timeouts != timeouts || web.Routes[0].Timeouts != timeouts || web.Default.Timeouts != timeouts {
		t.Errorf("timeouts %+v, %+v, %+v", web.Timeouts, web.Routes[0].Timeouts, web.Default.Timeouts)
	}
	if web.Routes[0].Name != "db" || web.Routes[0].Bandwidth != 1<<20 || web.Routes[0].Removed.What != "close" {
		t.Errorf("the first route is %+v", web.Routes[0])
	}
	if web.Routes[1].Bandwidth != 1<<10 || web.Routes[1].Removed.What != "keep" {
		t.Errorf("the second route is %+v", web.Routes[1])
	}
	if dns.Timeouts.Idle != time.Minute || log.Timeouts.Idle != 0 {
		t.Errorf("idle: %v, %v", dns.Timeouts.Idle, log.Timeouts.Idle)
	}
	if web.TCP != (spec.Socket{KeepAlive: 7 * time.Second, KeepAliveCount: 3}) {
		t.Errorf("the listener's sockets: %+v", web.TCP)
	}
	db := c.Groups[0]
	if db.Dial.TCP != (spec.Socket{KeepAlive: 7 * time.Second, KeepAliveCount: 3, Nagle: true}) {
		t.Errorf("the group's sockets: %+v", db.Dial.TCP)
	}
	if db.Timeouts != (spec.GroupTimeouts{Connect: 2 * time.Second, Retries: 9 * time.Second}) || db.Check != nil || db.Retries != 0 {
		t.Errorf("the group: %+v", db)
	}
	if *db.Eject != (spec.Eject{Failures: 5, For: 10 * time.Second, Max: 5 * time.Minute, Share: 0.5}) {
		t.Errorf("eject: %+v", db.Eject)
	}
	if echo := c.Groups[1]; echo.Name != "echo:" || echo.Check == nil || echo.Check.Every != 9*time.Second {
		t.Errorf("the group of one: %+v", echo)
	}
}

// Classes have the names of their RFCs: 2474 (cs), 2597 (af), 3246 (ef), 8622 (le).
func TestDSCP(t *testing.T) {
	for text, want := range map[string]uint8{
		"0": 0, "63": 63, "0x2e": 46, "ef": 46, "le": 1, "cs0": 0, "cs7": 56, "af11": 10, "af23": 22, "af41": 34, "af43": 38,
	} {
		c := parsed(t, "listeners: {l: {listen: \"udp://:1\", to: g}}\ngroups: {g: {members: [\"udp://127.0.0.1:2\"], dscp: "+text+"}}\n")
		if got := c.Groups[0].Dial.DSCP; got != want {
			t.Errorf("dscp: %s is %d, want %d", text, got, want)
		}
	}
}
