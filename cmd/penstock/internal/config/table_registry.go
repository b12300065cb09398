package config

import (
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// registry is a spec.Registry with its servers as written.
type registry struct {
	spec.Registry
	etcd, consul, nomad, http, xds []string
	kubernetes, docker             string
}

// lists returns the lists of servers of the kinds that have several, by kind.
func (g *registry) lists() map[string]*[]string {
	return map[string]*[]string{"etcd": &g.etcd, "consul": &g.consul, "nomad": &g.nomad, "http": &g.http, "xds": &g.xds}
}

// serverURL is a server of a registry: a host and a port, without a path.
var serverURL = texts("URL", "http://HOST:PORT or https://HOST:PORT", `^https?://[^/?#@\s]+:[0-9]{1,5}$`, checkServer)

func checkServer(s string) (string, *fault) {
	_, address, _ := strings.Cut(s, "://")
	if e, err := spec.ParseUpstream("tcp://" + address); err != nil || e.LastPort != 0 {
		return "", faultf("invalid URL %s", quote(s))
	}
	return s, nil
}

// kubernetesType is where a Kubernetes API server is found.
var kubernetesType = paths(texts("Kubernetes API server", "in-cluster, the path of a kubeconfig, or https://HOST:PORT", `^(in-cluster|https?://[^/?#@\s]+:[0-9]{1,5}|[^\x00-\x1f\x7f:]+)$`, func(s string) (string, *fault) {
	if near := suggest(s, []string{"in-cluster"}); s != "in-cluster" && near != "" {
		return "", &fault{problem: "invalid Kubernetes API server " + quote(s), near: near}
	}
	return s, nil
}), func(s string) bool { return s != "in-cluster" && !isURL(s) })

// dockerType is where a Docker daemon is found.
var dockerType = texts("Docker daemon", "unix:PATH, http://HOST:PORT or https://HOST:PORT", `^(unix:/[^\x00-\x20\x7f]*|https?://[^/?#@\s]+:[0-9]{1,5})$`, func(s string) (string, *fault) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return "unix:/" + strings.TrimLeft(path, "/"), nil
	}
	return checkServer(s)
})

var registryKeys = keysOf("registry",
	field("etcd", nonEmptyList(serverURL), "", "The servers of an etcd cluster (version 3.4 or later, with its JSON gateway, which is on by default).", func(g *registry) *[]string { return &g.etcd }),
	field("consul", nonEmptyList(serverURL), "", "Consul agents or servers.", func(g *registry) *[]string { return &g.consul }),
	field("nomad", nonEmptyList(serverURL), "", "Nomad agents or servers (version 1.3 or later).", func(g *registry) *[]string { return &g.nomad }),
	field("kubernetes", kubernetesType, "", "A Kubernetes API server. in-cluster: that of the cluster in which the relay runs, with its service account; a path: as a kubeconfig says.", func(g *registry) *string { return &g.kubernetes }),
	field("docker", dockerType, "", "A Docker daemon. Who may use its socket may do anything on its host: see [members from Docker](fleet.md#members-from-docker).", func(g *registry) *string { return &g.docker }),
	field("http", nonEmptyList(serverURL), "", "HTTP servers with lists of members.", func(g *registry) *[]string { return &g.http }),
	field("xds", nonEmptyList(serverURL), "", "Servers of an xDS control plane (delta ADS over gRPC).", func(g *registry) *[]string { return &g.xds }),
	field("context", text("context", 256), "", "With a kubeconfig: the context to use. Default: its current one.", func(g *registry) *string { return &g.Context }),
	section("tls", registryTLSKeys, "With https: certificates.", func(g *registry) *spec.Registry { return &g.Registry }),
	field("token-file", filePath, "", "File with the token that is sent with each request; not for etcd. It is read again when it changes.", func(g *registry) *string { return &g.TokenFile }),
	field("user-file", filePath, "", "With etcd: file with USER:PASSWORD.", func(g *registry) *string { return &g.UserFile }),
).oneOf(spec.RegistryKinds...)

var registryTLSKeys = keysOf("registry.tls",
	field("ca", filePath, "", "File with the certificates that the server's must be signed by. Default: the system's.", func(g *spec.Registry) *string { return &g.CA }),
	field("certificate", filePath, "", "File with the client's certificate. The files are read again when they change.", func(g *spec.Registry) *string { return &g.Cert }),
	field("key", filePath, "", "File with the key of the client's certificate.", func(g *spec.Registry) *string { return &g.Key }),
	field("name", host, "", "The name in the server's certificate. Default: the host of the URL.", func(g *spec.Registry) *string { return &g.ServerName }),
)

// fileOf returns a configuration as a file, for comparing.
func fileOf(c *spec.Config) *file {
	f := &file{Config: *c}
	for _, g := range c.Registries {
		own := &registry{Registry: *g}
		switch list := g.ServerList(); g.Kind {
		case "kubernetes":
			own.kubernetes = g.Servers
		case "docker":
			own.docker = g.Servers
		default:
			*own.lists()[g.Kind] = list
		}
		f.registries = append(f.registries, own)
	}
	return f
}

func showRegistries(list []*registry) string {
	parts := make([]string, len(list))
	for i, g := range list {
		parts[i] = g.Name + ": " + registryKeys.show(*g)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// registries completes the registries of a file, and what discover says about them.
func (r *reader) registries(f *file) {
	for _, g := range f.registries {
		registryKeys.fill(r, g, nil)
		for _, kind := range spec.RegistryKinds {
			servers := map[string]string{"kubernetes": g.kubernetes, "docker": g.docker}[kind]
			if list := g.lists()[kind]; list != nil {
				servers = strings.Join(*list, " ")
			}
			if servers != "" {
				g.Kind, g.Servers = kind, servers
			}
		}
		f.Registries = append(f.Registries, &g.Registry)
		r.checkRegistry(g)
	}
	r.findFleet(f)
	for _, g := range f.Groups {
		for i := range g.Discover {
			r.findRegistry(f, &g.Discover[i])
		}
	}
}

func (r *reader) checkRegistry(g *registry) {
	if (g.Cert == "") != (g.Key == "") {
		r.fail(r.position(&g.Cert, &g.Key), fault{problem: "a certificate without its key, or a key without its certificate", allowed: "certificate and key together"})
	}
	if (strings.Contains(" "+g.Servers, " http://") || strings.HasPrefix(g.Servers, "unix:")) && g.CA+g.Cert+g.Key+g.ServerName != "" {
		r.fail(r.position(&g.CA, &g.Cert, &g.Key, &g.ServerName), fault{problem: "has no effect without TLS", allowed: "tls together with https://"})
	}
	only := func(v *string, what string, ok bool) {
		if r.isSet(v) && !ok && g.Kind != "" {
			r.fail(r.position(v), fault{problem: "has no effect with " + g.Kind, allowed: what})
		}
	}
	only(&g.UserFile, "with etcd", g.Kind == "etcd")
	only(&g.TokenFile, "with any kind but etcd", g.Kind != "etcd")
	only(&g.Context, "with a kubeconfig", g.Kind == "kubernetes" && strings.HasPrefix(g.Servers, "/"))
}

// findRegistry gives a discover entry its registry: the named one, or the only one of its kind.
func (r *reader) findRegistry(f *file, d *spec.Discover) {
	r.findRegistryAt(f, d, r.position(&d.Registry.Name, &d.Key, d))
}

func (r *reader) findRegistryAt(f *file, d *spec.Discover, at *place) {
	kind, name := d.Registry.Kind, d.Registry.Name
	if kind == "" {
		if name != "" {
			r.fail(at, fault{problem: "has no effect with DNS", allowed: "registry together with " + strings.Join(spec.RegistryKinds, ", ")})
		}
		return
	}
	var fit []*registry
	var names []string
	for _, g := range f.registries {
		if g.Kind == kind && (name == "" || g.Name == name) {
			fit = append(fit, g)
		}
		if g.Kind == kind {
			names = append(names, g.Name)
		}
	}
	switch {
	case len(fit) == 1:
		d.Registry = fit[0].Registry
	case name != "":
		f := fault{problem: "no " + kind + " registry " + plain(name), near: suggest(name, names), allowed: firstNames(names)}
		if len(names) == 0 {
			f.allowed = "the name of one in registries"
		}
		r.fail(at, f)
	case len(fit) == 0:
		r.fail(at, fault{problem: "there is no " + kind + " registry", allowed: "registries with one of kind " + kind})
	default:
		r.fail(at, fault{problem: "there are several " + kind + " registries", allowed: "registry: one of " + firstNames(names)})
	}
}

// The fleet.

var fleetKeys = keysOf("fleet",
	field("etcd", texts("key", "a key that begins with /", `^/[^\x00-\x1f\x7f]+$`, func(s string) (string, *fault) { return strings.TrimRight(s, "/"), nil }), "", "The key of the fleet in etcd. Default: with penstock run -c etcd://..., that of the configuration.", func(f *spec.Fleet) *string { return &f.Key }),
	field("registry", nameType, "", "Which of registries to use. Default: the only etcd.", func(f *spec.Fleet) *string { return &f.Registry.Name }),
	field("drain-grace", duration(0, "0"), "5s", "How long a relay goes on accepting after it was ordered to drain. It is not ready from the beginning, so that load balancers in front can see that.", func(f *spec.Fleet) *time.Duration { return &f.DrainGrace }),
)

// findFleet gives the fleet its registry.
func (r *reader) findFleet(f *file) {
	d := spec.Discover{Registry: f.Fleet.Registry, Key: f.Fleet.Key}
	switch {
	case f.Fleet.Key != "":
		d.Registry.Kind = "etcd"
		r.findRegistryAt(f, &d, r.position(&f.Fleet.Registry.Name, &f.Fleet.Key))
		f.Fleet.Registry = d.Registry
	case f.Fleet.Registry.Name != "":
		r.fail(r.position(&f.Fleet.Registry.Name), fault{problem: "has no effect without a key", allowed: "registry together with etcd"})
	}
}
