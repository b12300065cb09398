package sandboxneeds

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What several rows share.

func (a *adder) addIf(needed bool, kind Kind) {
	if needed {
		a.add(kind)
	}
}

// systemFiles are what package net, certificates, and the measuring of this process read. Those of /etc are named one by one.
var systemFiles = []string{
	"/etc/hosts", "/etc/passwd", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols", "/etc/host.conf", "/etc/gai.conf", "/etc/localtime",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
	"/usr/share/zoneinfo", "/proc", "/sys/fs/cgroup", "/dev/urandom",
}

// Resolver is the file that says where name servers are. Programs that write it replace it.
const Resolver = "/etc/resolv.conf"

func system(a *adder, _ *spec.Config) {
	for _, path := range systemFiles {
		a.path(Read, path)
	}
	a.path(Write, "/dev/null")
	if a.in.Reloads && a.in.Alone {
		// They may be replaced, and nobody else could read the files that take their place.
		a.folder(Read, Resolver)
		a.folder(Read, "/etc/hosts")
		return
	}
	a.path(Read, Resolver)
	if real, err := filepath.EvalSymlinks(Resolver); err == nil && filepath.Dir(real) != filepath.Dir(Resolver) {
		a.path(Read, filepath.Dir(real))
	}
}

// source adds what a reload reads.
func source(a *adder, c *spec.Config) {
	for _, path := range a.in.Files {
		if abs, err := a.in.Abs(path); err == nil {
			a.folder(Read, abs)
		}
	}
	for _, path := range a.in.Folders {
		if abs, err := a.in.Abs(path); err == nil {
			a.tree(Read, abs)
			a.folder(Read, abs)
		}
	}
	for i := range a.in.Remotes {
		r := &a.in.Remotes[i]
		a.registry(r)
		a.add(AnyPort) // of what it will have
		if r.Kind == "etcd" {
			a.rebinds(c.Listeners...) // it has orders for this relay, too
		}
	}
}

// rebinds adds what it needs to bind the ports of listeners later: a relay of a fleet closes them and binds them again, and flows of
// UDP have sockets of their own when a listener closes.
func (a *adder) rebinds(listeners ...*spec.Listener) {
	for _, l := range listeners {
		for i := range l.Listen.Ports() {
			port := l.Listen.At(i).Port
			a.addIf(port != 0 && port < a.in.FirstPort, Rebind)
		}
	}
}

// token adds the file of one of the admin listener's tokens.
func token(i int) func(*adder, *spec.Config) {
	return func(a *adder, c *spec.Config) {
		if path := c.Admin.TokenFiles[i]; path != "" {
			if abs, err := a.in.Abs(path); err == nil {
				a.folder(Read, abs)
			}
		}
	}
}

// registry adds the files and servers of a registry.
func (a *adder) registry(r *spec.Registry) {
	for _, path := range []string{r.CA, r.Cert, r.Key, r.TokenFile, r.UserFile} {
		a.folder(Read, path)
	}
	a.servers(r)
}

func (a *adder) servers(r *spec.Registry) {
	servers := r.ServerList()
	if r.Kind == "kubernetes" && a.in.Credentials != nil {
		a.folder(Read, r.Servers)
		files, at, err := a.in.Credentials(*r)
		for _, path := range files {
			a.folder(Read, path)
		}
		servers = at
		a.addIf(err != nil, AnyPort) // it may be there later
	}
	for _, s := range servers {
		a.server(s)
	}
}

func servers(kind string) func(*adder, *spec.Registry) {
	return func(a *adder, r *spec.Registry) {
		if r.Kind == kind {
			a.servers(r)
		}
	}
}

func registryFile(of func(*spec.Registry) string) func(*adder, *spec.Registry) {
	return func(a *adder, r *spec.Registry) { a.folder(Read, of(r)) }
}

func certificate(of func(*spec.Certificate) string) func(*adder, *spec.Listener) {
	return func(a *adder, l *spec.Listener) {
		if l.TLS == nil {
			return
		}
		for i := range l.TLS.Certificates {
			a.folder(Read, of(&l.TLS.Certificates[i]))
		}
	}
}

func clients(of func(*spec.ClientCertificates) string) func(*adder, *spec.Listener) {
	return func(a *adder, l *spec.Listener) {
		if l.TLS != nil && l.TLS.Clients != nil {
			a.folder(Read, of(l.TLS.Clients))
		}
	}
}

// maxLinks bounds the files of a folder that are looked at, whether they are links.
const maxLinks = 4096

// certificateFolders adds folders of certificates and keys, and where the links in them lead.
func certificateFolders(a *adder, l *spec.Listener) {
	if l.TLS == nil {
		return
	}
	for _, c := range l.TLS.Certificates {
		if c.Folder == "" {
			continue
		}
		path := filepath.Clean(c.Folder)
		a.path(Read, path)
		a.folder(Read, path)
		entries, _ := os.ReadDir(path)
		for _, e := range entries[:min(len(entries), maxLinks)] {
			if e.Type()&fs.ModeSymlink != 0 {
				a.folder(Read, filepath.Join(path, e.Name()))
			}
		}
	}
}

func clientFile(of func(*spec.ClientTLS) string) func(*adder, *spec.Group) {
	return func(a *adder, g *spec.Group) {
		if g.TLS != nil {
			a.folder(Read, of(g.TLS))
		}
	}
}

// discovered returns what adds the ports of members that are found in a registry of a kind, or by DNS with those look-ups that only is true
// of.
func discovered(kind string, only func(*spec.Discover) bool) func(*adder, *spec.Group) {
	return func(a *adder, g *spec.Group) {
		for i := range g.Discover {
			d := &g.Discover[i]
			if d.Registry.Kind != kind || only != nil && !only(d) {
				continue
			}
			switch {
			case d.Network == spec.UDP: // and so are their checks, but for those with a port of their own
			case kind == "" && d.Service == "" && d.Port != 0:
				a.port(Connect, d.Port)
			default:
				a.add(AnyPort)
			}
			if kind == "" {
				a.naming("names").port(Connect, 53)
			}
		}
	}
}

// lists returns what adds the needs of each list.
func lists(of func(*adder, *spec.List)) func(*adder, *spec.Config) {
	return func(a *adder, c *spec.Config) {
		for _, l := range c.Lists {
			of(a.naming("lists."+l.Name), l)
		}
	}
}

// webServer adds the server of a URL.
func (a *adder) webServer(text string) {
	if text != "" {
		a.server(text)
	}
}

// ofCheck returns what f adds for the groups with a check of a kind.
func ofCheck(kind string, f func(*adder, *spec.Group, *spec.Check)) func(*adder, *spec.Group) {
	return func(a *adder, g *spec.Group) {
		if g.Check != nil && g.Check.Kind == kind {
			f(a, g, g.Check)
		}
	}
}

// checkTLS is the row of the files of a check's own tls.
func checkTLS(kind string) row {
	return row{key: "check." + kind + ".tls", needs: []Kind{Read}, group: ofCheck(kind, func(a *adder, g *spec.Group, c *spec.Check) {
		if t := c.TLS; t != nil && t != g.TLS {
			for _, path := range []string{t.CA, t.Cert, t.Key} {
				a.folder(Read, path)
			}
		}
	})}
}

// checkRows are the rows of the checks of a kind, over TCP.
func checkRows(kind string) []row {
	return []row{
		{key: "check." + kind + ".port", needs: []Kind{Connect}, group: ofCheck(kind, func(a *adder, _ *spec.Group, c *spec.Check) {
			if c.Port != 0 {
				a.endpoint(Check, spec.Endpoint{Kind: spec.TCP, Port: c.Port})
			}
		})},
		{key: "check." + kind + ".source", needs: []Kind{Bind}, group: ofCheck(kind, func(a *adder, _ *spec.Group, c *spec.Check) { a.addIf(c.Source.IsValid(), Bind) })},
		checkTLS(kind),
	}
}
