package discover

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func inDocker(s *testfleet.Docker) spec.Discover {
	return spec.Discover{Registry: spec.Registry{Kind: "docker", Servers: s.URL}, Key: "web", Network: spec.TCP}
}

const (
	dockerOne = `"Names": ["/web1"], "Image": "web:2", "Labels": {"penstock.group": "api, web"}, "Ports": [{"PrivatePort": 80, "Type": "tcp"}, {"PrivatePort": 80, "Type": "udp"}],
		"NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.1"}}}`
	dockerTwo = `"Names": ["/web2"], "Labels": {"penstock.group": "web", "penstock.port": "8080", "penstock.weight": "2", "penstock.network": "front"},
		"NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.2"}, "front": {"IPAddress": "", "GlobalIPv6Address": "fd00::2"}, "none": null}}`
)

func TestDockerFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		s := testfleet.NewMemoryDocker(t, network)
		s.Run("one", dockerOne)
		w := watchFor(t, network, inDocker(s))
		w.wants("172.17.0.1:80")
		if got, want := w.seen().list[0].Metadata, `{"container":"web1","id":"one","image":"web:2"}`; got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		s.Run("two", dockerTwo)
		w.wants("172.17.0.1:80, [fd00::2]:8080*2")
		for _, ignored := range []string{"1", "0", ""} { // SIGHUP, as for a reload
			s.Event("kill", "one", ignored)
		}
		s.Event("kill", "two", "3")
		w.wants("172.17.0.1:80, [fd00::2]:8080*2 draining")
		s.Event("start", "two", "")
		w.wants("172.17.0.1:80, [fd00::2]:8080*2")
		s.Event("kill", "two", "15")
		w.wants("172.17.0.1:80, [fd00::2]:8080*2 draining")
		s.Die("two")
		w.wants("172.17.0.1:80")
		s.Run("two", dockerTwo) // of the same ID, as docker restart does
		w.wants("172.17.0.1:80, [fd00::2]:8080*2")

		s.Stop()
		s.Die("one")
		w.fails("connection refused")
		w.keeps("172.17.0.1:80, [fd00::2]:8080*2")
		s.Start()
		w.wants("[fd00::2]:8080*2")
		s.EndEvents()
		w.fails("ended its events")
		w.wants("[fd00::2]:8080*2")
	})
}

// TestDockerResync: what no event tells is noticed, and so is a daemon that hangs.
func TestDockerResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		s := testfleet.NewMemoryDocker(t, network)
		s.Run("one", dockerOne)
		w := watchFor(t, network, inDocker(s))
		w.wants("172.17.0.1:80")
		time.Sleep(3 * dockerResync)
		synctest.Wait()
		if n := len(s.Requests()); n < 4 || n > 5 {
			t.Errorf("%d requests, with the first two, after %v", n, 3*dockerResync)
		}
		s.Fault(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		w.patience = 10 * time.Minute
		w.fails("")
		w.keeps("172.17.0.1:80")
	})
}

// TestDockerShared: groups that find members in the same daemon have one watch, which a new one joins, and which ends with the last one.
func TestDockerShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		s := testfleet.NewMemoryDocker(t, network)
		s.Run("one", dockerOne)
		s.Run("two", dockerTwo)
		sources := New(Options{dial: network.DialContext})
		streams := func() (n int) {
			for _, r := range s.Requests() {
				if r.URL.Path == "/events" {
					n++
				}
			}
			return n
		}
		web, api := inDocker(s), inDocker(s)
		api.Key, api.Port = "api", 8080
		first, second := newWatched(t), newWatched(t)
		stopFirst := first.run(sources.Discoverer(web))
		first.wants("172.17.0.1:80, [fd00::2]:8080*2")
		stopSecond := second.run(sources.Discoverer(api))
		second.wants("172.17.0.1:8080")
		s.Event("kill", "one", "15")
		first.wants("172.17.0.1:80 draining, [fd00::2]:8080*2")
		second.wants("172.17.0.1:8080 draining")
		third := newWatched(t)
		stopThird := third.run(sources.Discoverer(web))
		third.wants("172.17.0.1:80 draining, [fd00::2]:8080*2") // an event from before it joined
		if n := streams(); n != 1 {
			t.Errorf("three groups have the daemon's events %d times", n)
		}

		// Each learns that the daemon is away, one that joins meanwhile at once, and each that it is back.
		s.Stop()
		first.fails("connection refused")
		second.fails("connection refused")
		fourth := newWatched(t)
		stopFourth := fourth.run(sources.Discoverer(api))
		synctest.Wait()
		if err := fourth.seen().err; err == nil {
			t.Error("a group that joins while the daemon is away is not told")
		}
		s.Start()
		for _, w := range []*watched{first, third} {
			w.wants("172.17.0.1:80 draining, [fd00::2]:8080*2")
		}
		for _, w := range []*watched{second, fourth} {
			w.wants("172.17.0.1:8080 draining")
		}
		if n := streams(); n != 2 {
			t.Errorf("the daemon's events were asked for %d times, with one new start", n)
		}

		// Who leaves is told nothing more, and ends nobody else's watch.
		stopFirst()
		left := first.seen().lists
		s.Die("one")
		third.wants("[fd00::2]:8080*2")
		second.wants("")
		if now := first.seen().lists; now != left {
			t.Errorf("a group that has left was told %d lists", now-left)
		}
		stopSecond()
		stopThird()
		stopFourth()
		synctest.Wait()
		if len(sources.docker) != 0 {
			t.Errorf("watches without groups: %d", len(sources.docker))
		}

		// A watch after the last one is a new one.
		fifth := newWatched(t)
		fifth.run(sources.Discoverer(web))
		fifth.wants("[fd00::2]:8080*2")
		if n := streams(); n != 3 {
			t.Errorf("the daemon's events were asked for %d times in the end", n)
		}
	})
}

func TestDockerContainers(t *testing.T) {
	network := `"NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.1"}}}`
	for _, c := range []struct {
		container string // in addition to a label and a state
		change    func(*spec.Discover)
		want      string
	}{
		{network + `, "Ports": [{"PrivatePort": 80, "Type": "tcp"}, {"PrivatePort": 80, "PublicPort": 8080, "IP": "::", "Type": "tcp"}]`, nil, "172.17.0.1:80"},
		{network + `, "Ports": [{"PrivatePort": 443, "Type": "tcp"}, {"PrivatePort": 80, "Type": "tcp"}]`, nil, "it exposes 2 tcp ports [80 443]: the label penstock.port says which one is meant"},
		{network, nil, "it exposes 0 tcp ports []"},
		{network + `, "Ports": [{"PrivatePort": 53, "Type": "udp"}]`, func(d *spec.Discover) { d.Network = spec.UDP }, "172.17.0.1:53"},
		{network, func(d *spec.Discover) { d.Port = 99 }, "172.17.0.1:99"},
		{network + `, "Labels": {"penstock.group": "web", "penstock.port": "70000"}`, nil, `penstock.port "70000" is not a port`},
		{network + `, "Labels": {"penstock.group": "web", "penstock.port": "80", "penstock.priority": "1", "penstock.zone": "a"}`, nil, "172.17.0.1:80@a"},
		{network + `, "Labels": {"penstock.group": "web", "penstock.draining": "maybe"}`, nil, `draining "maybe" is neither true nor false`},
		{network + `, "Labels": {"penstock.group": "webs"}`, nil, ""},
		{network + `, "Labels": null`, nil, ""},
		{network + `, "State": "paused"`, nil, ""},
		{network + `, "Status": "Up 3 minutes (unhealthy)"`, nil, ""},
		{network + `, "Status": "Up 3 seconds (health: starting)"`, nil, ""},
		{network + `, "Status": "Up 3 minutes (healthy)"`, func(d *spec.Discover) { d.Port = 80 }, "172.17.0.1:80"},
		{`"Ports": [{"PrivatePort": 80, "Type": "tcp"}]`, nil, "it has addresses in 0 networks"},
		{`"Ports": [{"PrivatePort": 80, "Type": "tcp"}], "NetworkSettings": {"Networks": {"a": {"IPAddress": "10.0.0.1"}, "b": {"IPAddress": "10.1.0.1"}}}`, nil, "it has addresses in 2 networks"},
		{`"Ports": [{"PrivatePort": 80, "Type": "tcp"}], "NetworkSettings": {"Networks": {"a": {"IPAddress": "10.0.0.1"}, "b": {"IPAddress": "10.1.0.1"}}}`, func(d *spec.Discover) { d.DockerNetwork = "b" }, "10.1.0.1:80"},
		{network + `, "Ports": [{"PrivatePort": 80, "Type": "tcp"}]`, func(d *spec.Discover) { d.DockerNetwork = "b" }, "it has no address in the network b"},
		{`"HostConfig": {"NetworkMode": "host"}`, func(d *spec.Discover) { d.Port, d.Registry.Servers = 80, "unix:/run/docker.sock" }, "127.0.0.1:80"},
		{`"HostConfig": {"NetworkMode": "host"}`, func(d *spec.Discover) { d.Port, d.Registry.Servers = 80, "https://10.9.9.9:2376" }, "10.9.9.9:80"},
		{`"HostConfig": {"NetworkMode": "host"}`, func(d *spec.Discover) { d.Port, d.Registry.Servers = 80, "https://docker.local:2376" }, "its URL has a name"},
		{`"Ports": [{"PrivatePort": 80, "PublicPort": 8080, "IP": "::", "Type": "tcp"}, {"PrivatePort": 80, "PublicPort": 8081, "IP": "0.0.0.0", "Type": "tcp"}]`, func(d *spec.Discover) {
			d.Published, d.Registry.Servers = true, "unix:/run/docker.sock"
		}, "127.0.0.1:8081"},
		{`"Ports": [{"PrivatePort": 80, "PublicPort": 8080, "IP": "192.0.2.7", "Type": "tcp"}]`, func(d *spec.Discover) { d.Published, d.Registry.Servers = true, "https://docker.local:2376" }, "192.0.2.7:8080"},
		{network + `, "Ports": [{"PrivatePort": 80, "Type": "tcp"}]`, func(d *spec.Discover) { d.Published = true }, "its port 80 is not published"},
	} {
		d := spec.Discover{Registry: spec.Registry{Kind: "docker", Servers: "http://127.0.0.1:2375"}, Key: "web", Network: spec.TCP}
		if c.change != nil {
			c.change(&d)
		}
		got := dockerTold(t, `[{"Id": "0123456789abcdef", "Names": ["/web1"], "Labels": {"penstock.group": "web"}, "State": "running", "Status": "Up 1 second", `+c.container+`}]`, d)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.container, got, c.want)
		}
	}
}

// dockerTold returns the members that a list of containers makes, or what is wrong with it.
func dockerTold(t *testing.T, list string, d spec.Discover) string {
	t.Helper()
	containers, err := readElements[container](strings.NewReader(list), maxContainer, maxContainers)
	if err != nil {
		return err.Error()
	}
	var wrong []string
	f := newFeed(Options{LeftOut: func(_ spec.Discover, problem string) { wrong = append(wrong, problem) }}, d)
	w := &dockerWatch{feeds: map[*feed]bool{f: true}}
	w.tell(containers)
	checkTargets(t, f)
	ts, _, err := f.list()
	if err != nil {
		t.Fatal(err)
	}
	return showTargets(ts) + strings.Join(wrong, "; ")
}

func FuzzDocker(f *testing.F) {
	f.Add(`[{"Id": "a", "State": "running", `+dockerOne+`}, {"Id": "b", "State": "running", `+dockerTwo+`}]`, `{"Type": "container", "Action": "kill", "Actor": {"ID": "a", "Attributes": {"signal": "15"}}}`)
	f.Add(`[null, {"Id": "", "State": "running", "Labels": {"penstock.group": "web", "penstock.port": "1"}, "HostConfig": {"NetworkMode": "host"}}]`, `{} null {"Type": 1}`)
	f.Fuzz(func(t *testing.T, list, events string) {
		for _, published := range []bool{false, true} {
			dockerTold(t, list, spec.Discover{Registry: spec.Registry{Kind: "docker", Servers: "unix:/d"}, Key: "web", Network: spec.TCP, Published: published})
		}
		w := &dockerWatch{stopping: map[string]bool{}}
		if err := w.readEvents(t.Context(), strings.NewReader(events)); err == nil {
			t.Fatal("events end without an error")
		}
	})
}
