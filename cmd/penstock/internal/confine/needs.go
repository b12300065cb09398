package confine

import (
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Input is what needs are derived from, besides the kernel's limits.
type Input struct {
	Config *spec.Config
	// Files and Folders are what the configuration was read from; see config.Source.Inputs.
	Files, Folders []string
	// Remotes are the registries of the command line.
	Remotes []spec.Registry
	// Credentials returns the files and servers of a registry whose own files name them, such as a kubeconfig.
	Credentials func(spec.Registry) (files, servers []string, err error)
	// Notify is the socket of the service manager; empty: none, or the keeper has it.
	Notify string
	// Reloads reports that the configuration can change while the process runs, and that no other process could take
	// over then: what a later configuration may need is needed now, as far as that is known.
	Reloads bool
	// FirstPort is the first port that needs no capability.
	FirstPort uint16
	// Abs makes a path absolute; nil: filepath.Abs.
	Abs func(string) (string, error)
}

// Of returns what a configuration needs.
func Of(in Input) Needs {
	if in.Abs == nil {
		in.Abs = filepath.Abs
	}
	var n Needs
	n.system(&in)
	n.source(&in)
	c := in.Config
	n.logs(c)
	n.admin(&in, &c.Admin)
	for _, r := range in.Remotes {
		n.registry(&in, &r, "the configuration's registry")
	}
	if len(in.Remotes) > 0 {
		n.add(AnyPort, "", 0, "the configuration comes from a registry")
	}
	for _, r := range c.Registries {
		n.registry(&in, r, "registries."+r.Name)
	}
	if c.Fleet.Registry.Kind != "" {
		n.registry(&in, &c.Fleet.Registry, "fleet")
	}
	if c.Node.State != "" {
		if state, err := in.Abs(c.Node.State); err == nil {
			n.add(Write, state, 0, "--state")
			if real, err := filepath.EvalSymlinks(state); err == nil && real != state {
				n.add(Write, real, 0, "--state") // the keeper compares paths
			}
		}
	}
	for _, l := range c.Listeners {
		n.listener(&in, l)
	}
	for _, g := range c.Groups {
		n.group(g)
	}
	if in.Notify != "" {
		n.add(Unix, "", 0, "NOTIFY_SOCKET")
	}
	if strings.HasPrefix(in.Notify, "@") {
		n.add(Abstract, "", 0, "NOTIFY_SOCKET")
	}
	if in.Reloads {
		n.add(AnyPort, "", 0, "a reload may bring members on other ports")
		n.add(Unix, "", 0, "a reload may bring Unix sockets")
	}
	return n.sorted()
}

// systemFiles are what package net, certificates, and the measuring of this process read. Those of /etc are named one by one.
var systemFiles = []string{
	"/etc/hosts", "/etc/passwd", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols", "/etc/host.conf", "/etc/gai.conf", "/etc/localtime",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
	"/usr/share/zoneinfo", "/proc", "/sys/fs/cgroup", "/dev/urandom",
}

// Resolver is the file that says where name servers are. Programs that write it replace it.
const Resolver = "/etc/resolv.conf"

func (n *Needs) system(in *Input) {
	for _, path := range systemFiles {
		n.add(Read, path, 0, "the system's own files")
	}
	n.add(Write, "/dev/null", 0, "the system's own files")
	if in.Reloads {
		// Nobody else could read the files that take the place of these.
		n.folder(Read, Resolver, "names: %s may be replaced, and only a keeper could open the new one", Resolver)
		n.folder(Read, "/etc/hosts", "names: /etc/hosts may be replaced")
		return
	}
	n.add(Read, Resolver, 0, "names")
	if real, err := filepath.EvalSymlinks(Resolver); err == nil && filepath.Dir(real) != filepath.Dir(Resolver) {
		n.add(Read, filepath.Dir(real), 0, "names")
	}
}

// source adds what a reload reads.
func (n *Needs) source(in *Input) {
	for _, path := range in.Files {
		if abs, err := in.Abs(path); err == nil {
			n.folder(Read, abs, "the configuration")
		}
	}
	for _, path := range in.Folders {
		abs, err := in.Abs(path)
		if err != nil {
			continue
		}
		n.add(Read, abs, 0, "the configuration")
		if real, err := filepath.EvalSymlinks(abs); err == nil && real != abs {
			n.add(Read, real, 0, "the configuration")
		}
		n.folder(Read, abs, "the configuration")
	}
}

func (n *Needs) logs(c *spec.Config) {
	to := c.AccessLog.To
	if strings.HasPrefix(to, "/") {
		n.folder(Write, to, "access-log.to")
		return
	}
	server, ok := strings.CutPrefix(to, "syslog:")
	if !ok {
		return
	}
	if !strings.Contains(server, "://") && !strings.HasPrefix(server, "unix") {
		server = "udp://" + server
	}
	if e, err := spec.ParseUpstream(server); err == nil {
		n.endpoint(e, "access-log.to")
	}
}

func (n *Needs) admin(in *Input, a *spec.Admin) {
	for _, path := range a.TokenFiles {
		if abs, err := in.Abs(path); path != "" && err == nil {
			n.folder(Read, abs, "admin.token-file")
		}
	}
	switch {
	case a.Listen.Kind == spec.Unix && strings.HasPrefix(a.Listen.Path, "/"):
		n.folder(Write, a.Listen.Path, "admin.listen")
	case a.Listen.Kind == spec.TCP && a.Listen.Port != 0:
		n.add(Bind, "", a.Listen.Port, "admin.listen")
	}
}

// registry adds the files and servers of a registry.
func (n *Needs) registry(in *Input, r *spec.Registry, key string) {
	files := []string{r.CA, r.Cert, r.Key, r.TokenFile, r.UserFile}
	servers := r.ServerList()
	if r.Kind == "kubernetes" && in.Credentials != nil {
		if strings.HasPrefix(r.Servers, "/") {
			files = append(files, r.Servers)
		}
		more, at, err := in.Credentials(*r)
		files, servers = append(files, more...), at
		if err != nil { // it may be there later
			n.add(AnyPort, "", 0, "%s", key)
		}
	}
	for _, path := range files {
		if path != "" {
			n.folder(Read, path, "%s", key)
		}
	}
	for _, s := range servers {
		n.server(s, key)
	}
}

// server adds the port of a URL.
func (n *Needs) server(s, key string) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		n.add(AnyPort, "", 0, "%s", key)
		return
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case err == nil:
	case u.Scheme == "http":
		port = 80
	default:
		port = 443
	}
	n.add(Connect, "", uint16(port), "%s", key)
	n.name(u.Hostname())
}

// name adds what a lookup of a host needs, if it is a name. Answers that are too long for a datagram come over TCP.
func (n *Needs) name(host string) {
	if host != "" && net.ParseIP(host) == nil {
		n.add(Connect, "", 53, "names")
	}
}

func (n *Needs) listener(in *Input, l *spec.Listener) {
	key := "listeners." + l.Name
	e := l.Listen
	if e.Path != "" && l.Inherit == "" {
		n.add(Unix, "", 0, "%s.listen", key)
	}
	switch {
	case l.Inherit != "":
	case strings.HasPrefix(e.Path, "/"):
		n.folder(Write, e.Path, "%s.listen", key)
		if l.Mode != 0 {
			n.add(Modes, "", 0, "%s.mode", key)
		}
	case e.Kind == spec.TCP || e.Kind == spec.UDP:
		for i := range e.Ports() {
			port := e.At(i).Port
			if e.Kind == spec.TCP {
				n.add(Bind, "", port, "%s.listen", key)
			}
			if port != 0 && port < in.FirstPort {
				n.add(LowPort, "", port, "%s.listen", key)
			}
		}
		n.name(e.Host)
	}
	if l.Transparent {
		n.add(NetAdmin, "", 0, "%s.transparent", key)
	}
	if l.TCP.MPTCP {
		n.add(Multipath, "", 0, "%s.tcp.mptcp", key)
	}
	if l.TLS != nil {
		n.certificates(l.TLS.Files, key+".tls")
	}
}

// maxLinks bounds the files of a folder that are looked at, whether they are links.
const maxLinks = 4096

// certificates adds files and folders of certificates and keys, and where the links in the folders lead.
func (n *Needs) certificates(of func() (files, folders []string), key string) {
	files, folders := of()
	for _, path := range files {
		n.folder(Read, path, "%s", key)
	}
	for _, path := range folders {
		path = filepath.Clean(path)
		n.add(Read, path, 0, "%s", key)
		n.folder(Read, path, "%s", key)
		entries, _ := os.ReadDir(path)
		for _, e := range entries[:min(len(entries), maxLinks)] {
			if e.Type()&fs.ModeSymlink != 0 {
				n.folder(Read, filepath.Join(path, e.Name()), "%s", key)
			}
		}
	}
}

func (n *Needs) group(g *spec.Group) {
	key := "groups." + g.Name
	for i := range g.Members {
		n.endpoint(g.Members[i].To, key+".members")
	}
	for _, d := range g.Discover {
		switch {
		case d.Network == spec.UDP && g.Check == nil:
		case d.Registry.Kind == "" && d.Service == "" && d.Port != 0:
			n.add(Connect, "", d.Port, "%s.discover", key)
		case d.Network != spec.UDP || d.Service != "":
			n.add(AnyPort, "", 0, "%s.discover", key)
		}
		if d.Registry.Kind == "" {
			n.add(Connect, "", 53, "names")
		}
	}
	if g.Check != nil && g.Check.Port != 0 {
		n.add(Connect, "", g.Check.Port, "%s.check", key)
	}
	n.clientTLS(g.TLS, key+".tls")
	if t := g.CheckTLS(); t != g.TLS {
		n.clientTLS(t, key+".check")
	}
	d := &g.Dial
	if d.Mark != 0 {
		n.add(NetAdmin, "", 0, "%s.mark", key)
	}
	if d.Transparent {
		n.add(NetAdmin, "", 0, "%s.source", key)
	}
	if d.Interface != "" {
		n.add(NetRaw, "", 0, "%s.interface", key)
	}
	if len(d.Source) > 0 || g.Check != nil && g.Check.Source.IsValid() {
		n.add(Bind, "", 0, "%s.source", key)
	}
	if d.TCP.MPTCP {
		n.add(Multipath, "", 0, "%s.tcp.mptcp", key)
	}
}

// clientTLS adds the files of TLS towards members.
func (n *Needs) clientTLS(t *spec.ClientTLS, key string) {
	if t == nil {
		return
	}
	for _, path := range []string{t.CA, t.Cert, t.Key} {
		if path != "" {
			n.folder(Read, path, "%s", key)
		}
	}
}

// endpoint adds what connecting to an endpoint needs.
func (n *Needs) endpoint(e spec.Endpoint, key string) {
	if e.Path != "" {
		n.add(Unix, "", 0, "%s", key)
	}
	switch {
	case strings.HasPrefix(e.Path, "@"):
		n.add(Abstract, "", 0, "%s", key)
	case e.Kind == spec.TCP:
		for i := range e.Ports() {
			n.add(Connect, "", e.At(i).Port, "%s", key)
		}
	}
	if e.Kind == spec.TCP || e.Kind == spec.UDP {
		n.name(e.Host)
	}
}
