package sandboxneeds

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Each key of the configuration has one row, or is in harmless: a new one fails this test until somebody has thought about what it needs
// and when a change of it takes effect. No row is about a key that there is no more.
func TestEveryKey(t *testing.T) {
	declared := map[string]int{}
	for _, r := range rows {
		if strings.Contains(r.key, ".") && !strings.HasPrefix(r.key, "fs.") {
			declared[r.key]++
		}
	}
	for line := range strings.Lines(strings.TrimSpace(harmless)) {
		section, names, _ := strings.Cut(line, ":")
		for _, name := range strings.Fields(names) {
			declared[section+"."+name]++
		}
	}
	for _, key := range config.Keys() {
		switch declared[key] {
		case 0:
			t.Errorf("nobody has said what the key %s needs, and when a change of it takes effect; allowed: a row, or its name in harmless", key)
		case 1:
		default:
			t.Errorf("the key %s has %d rows", key, declared[key])
		}
		delete(declared, key)
	}
	for key := range declared {
		t.Errorf("there is no key %s any more", key)
	}
}

// A row adds only what it declares, and what it declares is added for some configuration.
func TestRowsAreTrue(t *testing.T) {
	inputs := []Input{}
	for _, c := range cases {
		in, _ := inputOf(t, c.text)
		inputs = append(inputs, in)
	}
	in, _ := load(t, "listeners: {web: {listen: 'tcp://:80', to: 'echo:'}}")
	in.Reloads, in.Alone, in.PipesLimited, in.Notify, in.Config.Node.State = true, true, true, "@manager", "/var/lib/p"
	in.Remotes = []spec.Registry{{Kind: "etcd", Servers: "http://10.0.0.1:2379"}}
	in.Members = map[string][]spec.Endpoint{"g": {{Kind: spec.TCP, Host: "10.0.0.1", Port: 9000}, {Kind: spec.Unix, Path: "@m"}}}
	in.Config.Listeners = append(in.Config.Listeners, &spec.Listener{Name: "u", Inherit: "u", Datagrams: true})
	in.Inherited = func(string) spec.Kind { return spec.Unixgram }
	inputs = append(inputs, in)
	kubernetes, _ := load(t, echo)
	kubernetes.Config.Registries = []*spec.Registry{{Name: "k", Kind: "kubernetes", Servers: "/k/config"}, {Name: "e", Kind: "etcd", Servers: "?"}, {Name: "c", Kind: "consul", Servers: "?"}, {Name: "x", Kind: "xds", Servers: "?"},
		{Name: "n", Kind: "nomad", Servers: "? http://10.0.0.1:4646"}, {Name: "h", Kind: "http", Servers: "? http://10.0.0.1:80"}, {Name: "d", Kind: "docker", Servers: "? http://10.0.0.1:2375"}, {Name: "s", Kind: "docker", Servers: "unix:/run/docker.sock"}}
	kubernetes.Config.Groups = append(kubernetes.Config.Groups, &spec.Group{Name: "found", Discover: []spec.Discover{{Registry: spec.Registry{Kind: "nomad"}}, {Registry: spec.Registry{Kind: "docker"}}, {Registry: spec.Registry{Kind: "http"}}}})
	kubernetes.Config.Fleet = spec.Fleet{Key: "/f", Registry: spec.Registry{Kind: "etcd", Servers: "? http://10.0.0.1:2379", CA: "/a/ca.pem"}}
	kubernetes.Config.Listeners[0].Listen.Port = 80
	kubernetes.Credentials = func(spec.Registry) ([]string, []string, error) {
		return []string{"/k/ca"}, []string{"https://10.0.0.1:6443", "?"}, nil
	}
	kubernetes.Config.Lists = []*spec.List{
		{Name: "f", File: "/l/f"}, {Name: "u", URL: "https://lists.example.org/f", KeyFile: "/l/token", CA: "/l/ca"},
		{Name: "c", CrowdSec: "http://127.0.0.1:8080", KeyFile: "/l/key"}, {Name: "e", Etcd: "/l/", Registry: kubernetes.Config.Fleet.Registry},
	}
	kubernetes.Config.OTLP = spec.OTLP{To: "https://collector:4318", TokenFile: "/o/token", CA: "/o/ca"}
	inputs = append(inputs, kubernetes)
	for i := range rows {
		r := &rows[i]
		seen := map[Kind]bool{}
		for _, in := range inputs {
			if in.Abs == nil {
				in.Abs = func(path string) (string, error) { return path, nil }
			}
			var n Needs
			r.needsOf(&in, &n)
			for _, a := range n {
				seen[a.Kind] = true
				if !slices.Contains(r.needs, a.Kind) {
					t.Errorf("%s does not declare that it needs %s", r.key, a)
				}
			}
		}
		for _, k := range r.needs {
			if !seen[k] {
				t.Errorf("%s: no configuration of these tests needs %q", r.key, kinds[k].doing)
			}
		}
	}
}

// Each role has a row for each kind of endpoint.
func TestEveryEndpoint(t *testing.T) {
	n := 0
	for k := spec.Kind(1); k.UnmarshalText([]byte(k.String())) == nil; k++ {
		n++
		for r := range numRoles {
			if endpoints[r][k] == nil {
				t.Errorf("nobody has said what %s of the kind %s needs", roleNames[r], k)
			}
		}
	}
	if n < 6 {
		t.Errorf("only %d kinds of endpoints", n)
	}
}

// Each key takes effect when its row says so. Keys have the names that config.Compare gives them.
func TestWhenChanged(t *testing.T) {
	for key, want := range map[string]When{"engine.loops": NextWorker, "admin.listen": NextWorker, "keeper": NextService, "keeper.watchdog": ByKeeper, "drain": Now, "log.level": Now, "registries": Now} {
		if got := WhenChanged(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
