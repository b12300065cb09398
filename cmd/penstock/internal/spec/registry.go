package spec

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A Registry is where members, or a whole configuration, are kept outside of files: the servers of
// an etcd cluster, Consul, Nomad, a Kubernetes API server, a Docker daemon, an HTTP server, or an xDS control plane. It is comparable.
type Registry struct {
	Name    string // in the configuration; empty: it is from a command line
	Kind    string // one of RegistryKinds; empty: none
	Servers string // URLs, http or https, separated by spaces; of Kubernetes also "in-cluster", or the path of a kubeconfig; of Docker also unix:PATH
	Context string // of a kubeconfig; empty: its current one

	// Files, with absolute paths. They are read again when they change.
	CA         string // certificates that the server's must be signed by; empty: the system's
	Cert, Key  string // the client's; empty: none
	ServerName string // in the server's certificate; empty: the host of the URL
	TokenFile  string // a bearer token, or Consul's; empty: none
	UserFile   string // USER:PASSWORD of etcd; empty: none

	// Partial applies those of Envoy's resources that can be, instead of all or none; from a command line.
	Partial bool
}

// RegistryKinds are the kinds of registries.
var RegistryKinds = []string{"etcd", "consul", "nomad", "kubernetes", "docker", "http", "xds"}

// ServerList returns the URLs.
func (r Registry) ServerList() []string { return strings.Fields(r.Servers) }

// allowedRemote is what ParseRemote allows, for the ends of messages.
const allowedRemote = "etcd://HOST:PORT[,HOST:PORT...]/KEY, xds://HOST:PORT[,HOST:PORT...][/NAME], with TLS etcds:// and xdss://; options: ?ca=FILE&cert=FILE&key=FILE&name=HOST&user-file=FILE&token-file=FILE&partial=true"

// IsRemote reports whether a command line names a registry instead of a file.
func IsRemote(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && slices.Contains([]string{"etcd", "etcds", "xds", "xdss"}, scheme)
}

// RemoteName returns the URL of a registry without its options, for messages.
func RemoteName(url string) string {
	name, _, _ := strings.Cut(url, "?")
	return name
}

// ParseRemote parses the URL of a registry on a command line, such as
// etcds://10.0.0.1:2379,10.0.0.2:2379/penstock/edge?ca=/etc/etcd/ca.pem. The key is the path, with its leading
// slash and without trailing ones. Of xDS it is the name of a Configuration, without slashes around it; empty: Envoy's
// resources are used. The error is an [*Error].
func ParseRemote(s string) (r Registry, key string, err error) {
	fail := func(format string, args ...any) (Registry, string, error) {
		return Registry{}, "", &Error{s, fmt.Sprintf(format, args...), allowedRemote}
	}
	if !IsRemote(s) {
		return fail("no registry")
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return fail("there is a space or a control character in the URL")
	}
	scheme, rest, _ := strings.Cut(s, "://")
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	if strings.Contains(rest, "@") { // also where a password has a slash
		s = scheme + "://...@..."
		return fail("a URL has no user and no password: it is seen by others, and kept; allowed with etcd: user-file=FILE")
	}
	r.Kind = strings.TrimSuffix(scheme, "s")
	http := "http://"
	if scheme == "etcds" || scheme == "xdss" {
		r.Kind, http = scheme[:len(scheme)-1], "https://"
	} else if scheme == "xds" {
		r.Kind = "xds"
	}
	var servers []string
	for _, host := range strings.Split(hosts, ",") {
		e := Endpoint{Kind: TCP}
		if problem := e.parseHostPort(host); problem != "" {
			return fail("%s", problem)
		}
		if e.Host == "" || e.Port == 0 || e.LastPort != 0 {
			return fail("%q needs a host and one port", host)
		}
		servers = append(servers, http+host)
	}
	r.Servers = strings.Join(servers, " ")
	options, err := url.ParseQuery(query)
	if err != nil {
		return fail("the options after ? cannot be read")
	}
	fields := map[string]*string{"ca": &r.CA, "cert": &r.Cert, "key": &r.Key, "name": &r.ServerName, "user-file": &r.UserFile, "token-file": &r.TokenFile}
	if r.Partial = options.Get("partial") == "true"; options.Has("partial") {
		if !r.Partial || r.Kind != "xds" || strings.Trim(path, "/") != "" {
			return fail("partial=true is for Envoy's resources")
		}
		delete(options, "partial")
	}
	for name, values := range options {
		to := fields[name]
		switch {
		case to == nil:
			return fail("unknown option %q", name)
		case len(values) != 1 || values[0] == "":
			return fail("the option %s needs one value", name)
		case name != "name" && !strings.HasPrefix(values[0], "/"):
			return fail("%s=%s: the path is not absolute", name, values[0])
		}
		*to = values[0]
	}
	tls := http == "https://"
	switch {
	case !tls && r.CA+r.Cert+r.Key+r.ServerName != "":
		return fail("ca, cert, key and name need TLS")
	case (r.Cert == "") != (r.Key == ""):
		return fail("cert and key belong together")
	case r.Kind == "xds" && r.UserFile != "", r.Kind == "etcd" && r.TokenFile != "":
		return fail("user-file is for etcd, token-file for xDS")
	}
	key = "/" + strings.Trim(path, "/")
	switch {
	case len(key) > 512 || strings.Contains(key, "//"):
		return fail("invalid key %q", key)
	case r.Kind == "xds":
		key = key[1:]
	case key == "/":
		return fail("the key is missing")
	}
	return r, key, nil
}

// ValidNode reports whether a text can be the name of a relay or a zone, which are parts of keys in a registry.
func ValidNode(s string) bool {
	for i, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_':
		case (c == '.' || c == '-') && i > 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= 253
}
