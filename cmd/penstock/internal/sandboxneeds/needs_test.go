package sandboxneeds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/sandbox"
)

// load reads a configuration that is the file penstock.yaml of a folder, which it returns.
func load(t *testing.T, text string) (Input, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "penstock.yaml"), strings.ReplaceAll(text, "DIR", dir))
	s := &config.Source{Paths: []string{filepath.Join(dir, "penstock.yaml")}}
	cfg, _, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Config: cfg, FirstPort: 1024, DeviceNeedsRaw: true}
	in.Files, in.Folders = s.Inputs()
	return in, dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const echo = "listeners: {web: {listen: 'tcp://127.0.0.1:8000', to: 'echo:'}}\n"

// ownNeeds returns the needs of a configuration without those that every one has.
func ownNeeds(in Input) Needs {
	system := Of(Input{Config: &spec.Config{}})
	return slices.DeleteFunc(Of(in), func(n Need) bool { return slices.Contains(system, n) || n.For == "the configuration" })
}

// cases are configurations and some of their needs: kinds and values, with DIR. Together they have everything that a row declares.
var cases = []struct {
	name, text string
	want       []string // nil: nothing but the listener
}{
	{"echo", echo, []string{"binding port 8000 (listeners.web.listen)"}},
	{"access log", echo + "access-log: {to: DIR/log/a.log}", []string{"writing DIR/log (access-log.to)"}},
	{"access log on a device", echo + "access-log: {to: /dev/stdout}", []string{"writing /dev/stdout (access-log.to)"}},
	{"syslog over TCP", echo + "access-log: {to: 'syslog:tcp://logs:6514'}", []string{"connecting to port 6514 (access-log.to)", "connecting to port 53 (names)"}},
	{"syslog over UDP", echo + "access-log: {to: 'syslog:10.0.0.1:514'}", nil},
	{"syslog at an abstract socket", echo + "access-log: {to: 'syslog:unix:@log'}", []string{"abstract Unix sockets (access-log.to)"}},
	{"admin path", echo + "admin: {listen: 'unix://DIR/run/admin.sock'}", []string{"writing DIR/run (admin.listen)"}},
	{"privileged admin port", echo + "admin: {listen: 'tcp://127.0.0.1:900', token-file: secret/token}", []string{"binding port 900, a privileged one (admin.listen)"}},
	{"admin addresses", echo + "admin: {listen: ['unix://DIR/run/admin.sock', 'tcp://127.0.0.1:9000'], token-file: secret/token}",
		[]string{"writing DIR/run (admin.listen)", "binding port 9000 (admin.listen)", "reading DIR/secret (admin.token-file)"}},
	{"admin port", echo + "admin: {listen: 'tcp://127.0.0.1:9000', token-file: secret/token, read-token-file: DIR/other/token}",
		[]string{"binding port 9000 (admin.listen)", "reading DIR/secret (admin.token-file)", "reading DIR/other (admin.read-token-file)"}},
	{"low ports", "listeners: {web: {listen: 'tcp://:80-81', to: 'echo:'}, dns: {listen: 'udp://:53', to: 'echo:'}}",
		[]string{"binding port 80, a privileged one (listeners.web.listen)", "binding port 81, a privileged one (listeners.web.listen)", "binding port 53, a privileged one (listeners.dns.listen)", "binding port 80 (listeners.web.listen)"}},
	{"name of a listener", "listeners: {web: {listen: 'tcp://own.name:8000', to: 'echo:'}}", []string{"connecting to port 53 (names)"}},
	{"Unix listener", "listeners: {web: {listen: 'unix://DIR/run/web.sock', mode: '0660', to: 'echo:'}}", []string{"writing DIR/run (listeners.web.listen)", "changing the permissions of paths (listeners.web.mode)"}},
	{"abstract listener", "listeners: {web: {listen: 'unix:@web', to: 'echo:'}}", nil},
	{"Unix datagrams", "listeners: {web: {listen: 'unixgram://DIR/run/web.sock', to: 'echo:'}}", []string{"writing DIR/run (listeners.web.listen)", "abstract Unix sockets (listeners.web.listen)"}},
	{"transparent, MPTCP", "listeners: {web: {listen: 'tcp://:8000', transparent: true, tcp: {mptcp: true}, to: 'echo:'}}", []string{"CAP_NET_ADMIN (listeners.web.transparent)", "Multipath TCP (listeners.web.tcp.mptcp)"}},
	{"members", echo + "groups: {g: {members: ['tcp://10.0.0.1:9000', 'tcp://b.example:9001-9003', 'udp://10.0.0.1:9004', 'unix:///run/m.sock', 'unix:@m']}}",
		[]string{"connecting to port 9000 (groups.g.members)", "connecting to port 9003 (groups.g.members)", "abstract Unix sockets (groups.g.members)", "connecting to port 53 (names)"}},
	{"check port", echo + "groups: {g: {members: ['tcp://10.0.0.1:9000'], check: {tcp: {port: 9100}}}}", []string{"connecting to port 9100 (groups.g.check.tcp.port)"}},
	{"source, mark, interface", echo + "groups: {g: {members: ['tcp://10.0.0.1:9000'], source: 10.0.0.9, mark: 7, interface: eth0, tcp: {mptcp: true}}}",
		[]string{"binding port 0 (groups.g.source)", "CAP_NET_ADMIN (groups.g.mark)", "CAP_NET_RAW (groups.g.interface)", "Multipath TCP (groups.g.tcp.mptcp)"}},
	{"source client", echo + "groups: {g: {members: ['tcp://10.0.0.1:9000'], source: client}}", []string{"CAP_NET_ADMIN (groups.g.source)"}},
	{"agent", echo + "groups: {g: {members: [{to: 'tcp://10.0.0.1:9000', agent-port: 9201}], agent: {port: 9200}}}", []string{"connecting to port 9200 (groups.g.agent.port)", "connecting to port 9201 (groups.g.members)"}},
	{"discover", echo + "groups: {g: {discover: [{dns: a.example, port: 9000}]}}", []string{"connecting to port 9000 (groups.g.discover.dns)", "connecting to port 53 (names)"}},
	{"destination", echo + "groups: {g: {destination: {port: 443, allow: ['*.example.org']}}}", []string{"connecting to port 443 (groups.g.destination.port)", "connecting to port 53 (names)"}},
	{"original destination", echo + "groups: {g: {destination: {by: original}}, h: {destination: {by: original, port: 22}}}", []string{"connecting to any port (groups.g.destination.port)", "connecting to port 22 (groups.h.destination.port)"}},
	{"discover SRV", echo + "groups: {g: {discover: [{srv: _web._tcp.example}]}}", []string{"connecting to any port (groups.g.discover.srv)"}},
	{"registries", echo + `
registries:
  e: {etcd: ['https://etcd.example:2379'], tls: {ca: DIR/pki/ca.pem, certificate: DIR/pki/cert.pem, key: DIR/keys/key.pem}, user-file: DIR/user/etcd}
  c: {consul: ['http://127.0.0.1:8500'], token-file: DIR/consul/token}
  x: {xds: ['https://10.0.0.1:18000']}
groups: {g: {discover: [{etcd: /a}]}}`,
		[]string{"reading DIR/pki (registries.e.tls.ca)", "reading DIR/keys (registries.e.tls.key)", "reading DIR/user (registries.e.user-file)", "reading DIR/consul (registries.c.token-file)", "connecting to port 2379 (registries.e.etcd)", "connecting to port 8500 (registries.c.consul)",
			"connecting to port 18000 (registries.x.xds)", "connecting to any port (groups.g.discover.etcd)", "connecting to port 53 (names)"}},
	{"certificates", `listeners: {web: {listen: 'tcp://127.0.0.1:8000', to: 'echo:', tls: {certificates: [{certificate: DIR/certs/a.pem, key: DIR/keys/a.key, ocsp: DIR/ocsp/a.ocsp}, {folder: DIR/folder}], tickets: {keys: DIR/tickets/keys}, clients: {ca: DIR/ca/ca.pem, crl: DIR/crl/a.crl}}}}`,
		[]string{"reading DIR/certs (listeners.web.tls.certificate.certificate)", "reading DIR/keys (listeners.web.tls.certificate.key)", "reading DIR/ocsp (listeners.web.tls.certificate.ocsp)", "reading DIR/folder (listeners.web.tls.certificate.folder)",
			"reading DIR/tickets (listeners.web.tls.tickets.keys)", "reading DIR/ca (listeners.web.tls.clients.ca)", "reading DIR/crl (listeners.web.tls.clients.crl)", "binding port 8000 (listeners.web.listen)"}},
	{"TLS to members", echo + `
groups:
  a: {members: ['tcp://10.0.0.1:443'], tls: {ca: DIR/pki/ca.pem, certificate: DIR/own/cert.pem, key: DIR/keys/key.pem}}
  b: {members: ['tcp://10.0.0.1:443'], check: {http: {tls: {ca: DIR/check/ca.pem}}}}`,
		[]string{"reading DIR/pki (groups.a.tls.ca)", "reading DIR/own (groups.a.tls.certificate)", "reading DIR/keys (groups.a.tls.key)", "reading DIR/check (groups.b.check.http.tls)"}},
	{"checks", echo + `
groups:
  a: {members: ['tcp://10.0.0.1:443'], check: {tcp: {port: 9001, source: 10.0.0.9, tls: {ca: DIR/a/ca.pem}}}}
  b: {members: ['tcp://10.0.0.1:443'], check: {send-expect: {send: x, port: 9002, source: 10.0.0.9, tls: {ca: DIR/b/ca.pem}}}}
  c: {members: ['tcp://10.0.0.1:443'], check: {http: {port: 9003, source: 10.0.0.9}}}
  d: {members: ['udp://10.0.0.1:53'], check: {udp: {send: x, port: 9004, source: 10.0.0.9}}}
  e: {members: ['tcp://10.0.0.1:443'], check: {postgres: {port: 9005, source: 10.0.0.9, tls: {ca: DIR/e/ca.pem}}}}
  f: {members: [{to: 'tcp://10.0.0.1:443', check-port: 9007}], check: {mysql: {port: 9006, source: 10.0.0.9, tls: {ca: DIR/f/ca.pem}}}}
  g: {members: [{to: 'tcp://10.0.0.1:443', agent-port: 9009}], agent: {port: 9008}}
  h: {members: ['udp://10.0.0.1:443'], check: {quic: {port: 9010, source: 10.0.0.9, tls: {ca: DIR/h/ca.pem, certificate: DIR/h/own.pem}}}}`,
		[]string{"reading DIR/h (groups.h.check.quic.tls)", "connecting to port 9001 (groups.a.check.tcp.port)", "reading DIR/a (groups.a.check.tcp.tls)", "reading DIR/b (groups.b.check.send-expect.tls)", "binding port 0 (groups.c.check.http.source)"}},
	{"registries that find members", echo + `
registries: {c: {consul: ['http://127.0.0.1:8500']}, k: {kubernetes: 'https://127.0.0.1:6443'}, x: {xds: ['http://127.0.0.1:18000']}}
groups: {g: {discover: [{consul: a}, {kubernetes: a/b}, {xds: a}]}}`,
		[]string{"connecting to any port (groups.g.discover.consul)", "connecting to any port (groups.g.discover.kubernetes)", "connecting to any port (groups.g.discover.xds)"}},
	{"fleet", echo + "registries: {e: {etcd: ['http://127.0.0.1:2379']}}\nfleet: {etcd: /f}", []string{"connecting to port 2379 (fleet)"}},
}

// inputOf reads the configuration of a case, with tokens in files, and returns what replaces its folders by DIR.
func inputOf(t *testing.T, text string) (Input, func(string) string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"secret/token", "other/token"} {
		write(t, filepath.Join(dir, name), strings.Repeat("t", 16+len(name)))
	}
	text = strings.ReplaceAll(text, "secret/token", filepath.Join(dir, "secret/token"))
	text = strings.ReplaceAll(text, "DIR/other", filepath.Join(dir, "other"))
	in, conf := load(t, text)
	return in, func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, dir, "DIR"), conf, "DIR") }
}

// Every path and port that a configuration can name is a need.
func TestNeeds(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in, short := inputOf(t, c.text)
			got := ownNeeds(in)
			var lines []string
			for _, n := range got {
				lines = append(lines, short(n.String()))
			}
			for _, want := range c.want {
				if !slices.Contains(lines, want) {
					t.Errorf("%q is missing in %q", want, lines)
				}
			}
			if c.want == nil && len(got) > 1 {
				t.Errorf("more than the listener: %q", lines)
			}
		})
	}
}

// What the command line and the environment name is needed, too.
func TestNeedsOfCommandLine(t *testing.T) {
	in, dir := load(t, echo)
	in.Config.Node.State = "/var/lib/p"
	in.Notify = "@manager"
	r, _, err := spec.ParseRemote("etcds://10.0.0.1:2379/a?ca=/a/ca.pem&cert=/b/cert.pem&key=/c/key.pem&user-file=/d/user")
	if err != nil {
		t.Fatal(err)
	}
	in.Remotes = []spec.Registry{r}
	in.Config.Registries = []*spec.Registry{{Name: "k", Kind: "kubernetes", Servers: "/k/config"}}
	in.Credentials = func(spec.Registry) ([]string, []string, error) {
		return []string{"/k/ca", "/t/token"}, []string{"https://10.0.0.1:6443"}, nil
	}
	p := Of(in).Policy(sandbox.Enforce, nil)
	for _, path := range []string{"/a", "/b", "/c", "/d", "/k", "/t", dir} {
		if !slices.Contains(p.Read, path) {
			t.Errorf("%s is not readable: %q", path, p.Read)
		}
	}
	if !slices.Contains(p.Write, "/var/lib/p") || !p.Outside || !slices.Contains(p.Connect, 6443) || !p.AnyConnect {
		t.Errorf("%+v", p)
	}
}

// A file that is replaced by a rename, also one behind a symbolic link, can be read afterwards: its folder is in the policy.
func TestFolderOfLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "real/v1/token"), "x")
	if err := os.Symlink("real/v1/token", filepath.Join(dir, "token")); err != nil {
		t.Fatal(err)
	}
	var n Needs
	a := &adder{needs: &n}
	a.folder(Read, filepath.Join(dir, "token"))
	if got, want := n.Policy(0, nil).Read, []string{dir}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	n = nil
	if err := os.MkdirAll(filepath.Join(dir, "links"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../real/v1/token", filepath.Join(dir, "links/token")); err != nil {
		t.Fatal(err)
	}
	a.folder(Write, filepath.Join(dir, "links/token"))
	if got, want := n.Policy(0, nil).Write, []string{dir + "/links", dir + "/real/v1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// The folder for the state, which systemd makes a link of with DynamicUser=, is written where it leads to.
	if err := os.Symlink("real/v1", filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	of := Of(Input{Config: &spec.Config{Node: spec.Node{State: filepath.Join(dir, "state")}}})
	if got := of.Policy(0, nil).Write; !slices.Contains(got, dir+"/state") || !slices.Contains(got, dir+"/real/v1") {
		t.Errorf("%q has not both names of the state", got)
	}
}

// Where the links in a folder of certificates lead, files can be read, too.
func TestLinksOfCertificates(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "archive/a/a1.pem"), "x")
	if err := os.MkdirAll(filepath.Join(dir, "pki/folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../archive/a/a1.pem", filepath.Join(dir, "pki/folder/a.pem")); err != nil {
		t.Fatal(err)
	}
	l := &spec.Listener{Name: "web", TLS: &spec.ServerTLS{Certificates: []spec.Certificate{{Folder: filepath.Join(dir, "pki/folder")}}}}
	if got := Of(Input{Config: &spec.Config{Listeners: []*spec.Listener{l}}}).Policy(0, nil).Read; !slices.Contains(got, filepath.Join(dir, "archive/a")) {
		t.Errorf("%q has not the folder that a link leads to", got)
	}
}

// A process without a keeper keeps what reloads may need; one with a keeper does not.
func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Input)
		keep    []sandbox.Capability
		connect bool
		bind    bool
	}{
		{"keeper", func(in *Input) { in.Reloads = true }, nil, false, true},
		{"no keeper", func(in *Input) { in.Reloads, in.Alone = true, true }, []sandbox.Capability{sandbox.NetBindService}, true, true},
		{"no reloads", func(*Input) {}, nil, false, false},
		{"listeners are bound again", func(in *Input) {
			in.Reloads = true
			in.Config.Fleet = spec.Fleet{Key: "/f", Registry: spec.Registry{Kind: "etcd", Servers: "http://10.0.0.1:2379"}}
		}, []sandbox.Capability{sandbox.NetBindService}, false, true},
		{"limited pipes", func(in *Input) { in.PipesLimited = true }, []sandbox.Capability{SysResource}, false, false},
	} {
		in, _ := load(t, "listeners: {web: {listen: 'tcp://:80', to: 'tcp://10.0.0.1:9000'}}")
		c.change(&in)
		p := Of(in).Policy(sandbox.Enforce, nil)
		if !slices.Equal(p.Keep, c.keep) || p.AnyConnect != c.connect || p.AnyBind != c.bind {
			t.Errorf("%s: %+v", c.name, p)
		}
		if shadow := covers(p.Read, "/etc/shadow") || covers(p.Write, "/etc/shadow"); shadow != in.Alone {
			t.Errorf("%s: /etc/shadow in the policy: %t", c.name, shadow)
		}
	}
}

// Members at run time bring ports, in a bounded number, and nothing else: a process that was taken over may have invented them.
func TestMembersAtRunTime(t *testing.T) {
	in, _ := load(t, "listeners: {web: {listen: 'tcp://127.0.0.1:8000', to: 'tcp://10.0.0.1:9000'}}")
	in.Members = map[string][]spec.Endpoint{"web": {{Kind: spec.TCP, Host: "10.0.0.1", Port: 9000}, {Kind: spec.TCP, Host: "10.0.0.1", Port: 9001}, {Kind: spec.Unix, Path: "@m"}, {Kind: spec.UDP, Host: "10.0.0.1", Port: 53}}}
	n := Of(in)
	p := n.Policy(sandbox.Enforce, nil)
	if !slices.Equal(p.Connect, []uint16{9000, 9001}) || p.AnyConnect || p.Unix || p.Outside {
		t.Errorf("%+v", p)
	}
	if text := n.NotGranted().String(); text != "abstract Unix sockets (groups.web, at run time), Unix sockets (groups.web, at run time)" {
		t.Errorf("not granted: %s", text)
	}
	in.Members = map[string][]spec.Endpoint{"web": {{Kind: spec.TCP, Host: "10.0.0.1", Port: 1, LastPort: 60000}}}
	n = Of(in)
	if p := n.Policy(sandbox.Enforce, nil); len(p.Connect) != MaxAtRunTime+1 || p.AnyConnect {
		t.Errorf("%d ports, all: %t", len(p.Connect), p.AnyConnect)
	}
	if got := len(n.NotGranted()); got != 60000-MaxAtRunTime {
		t.Errorf("%d are not granted", got)
	}
}

// What a later configuration needs, and a process has given up, is found and named.
func TestMissing(t *testing.T) {
	first, _ := load(t, "listeners: {web: {listen: 'tcp://127.0.0.1:8000', to: 'tcp://10.0.0.1:9000'}}\naccess-log: {to: DIR/a.log}")
	h := &Held{Policy: Of(first).Policy(sandbox.Enforce, nil), Had: 1<<sandbox.NetBindService | 1<<sandbox.NetAdmin}
	for l := range sandbox.Calls + 1 {
		h.Report.Layers = append(h.Report.Layers, sandbox.Status{Layer: l, Held: true, Wanted: true})
	}
	unbound := func(Need) bool { return false }
	if m := h.Missing(Of(first), unbound); len(m) > 0 {
		t.Errorf("the same configuration lacks %s", m)
	}
	later, _ := load(t, `
listeners:
  web: {listen: 'tcp://127.0.0.1:80', transparent: true, to: 'tcp://10.0.0.1:9001', tcp: {mptcp: true}}
  path: {listen: 'unix:///run/elsewhere/s', mode: '0600', to: 'unix:@m'}
access-log: {to: /var/log/other/a.log}`)
	text := ""
	for _, n := range h.Missing(Of(later), unbound) {
		text += n.String() + "\n"
	}
	for _, want := range []string{"reading ", "writing /var/log/other (access-log.to)", "writing /run/elsewhere (listeners.path.listen)", "connecting to port 9001 (groups.", "privileged", "CAP_NET_ADMIN", "abstract", "Multipath", "permissions"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	for _, n := range h.Missing(Of(later), func(n Need) bool { return n.Kind == LowPort }) {
		if n.Kind == LowPort {
			t.Error("a port that is bound is missing")
		}
	}
	h.Had = 0
	for _, n := range h.Missing(Of(later), unbound) {
		if n.Kind == LowPort || n.Kind == NetAdmin {
			t.Errorf("%s is missing, and this process never had it", n)
		}
	}
	h.Report.Layers = nil
	h.Had = ^uint64(0)
	if m := h.Missing(Of(later), unbound); len(m) > 0 {
		t.Errorf("nothing holds, and %s is missing", m)
	}
	if m := (*Held)(nil).Missing(Of(later), unbound); len(m) > 0 {
		t.Errorf("%s is missing without a sandbox", m)
	}
	if text := Of(later).String(); !strings.Contains(text, "and ") || !strings.Contains(text, " more") {
		t.Errorf("a long list is not shortened: %s", text)
	}
}
