package sandboxneeds

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Role is what an endpoint is to this process.
type Role uint8

// The roles.
const (
	Listener  Role = iota // clients connect to it, or send to it, and are answered
	Inherited             // the same; the service manager has bound it
	Upstream              // flows are connected to it: a member
	Check                 // a health check is
	LogServer             // lines of a log are sent to it
	Manager               // states are sent to the service manager
	Admin                 // operators connect to it
	numRoles
)

var roleNames = [numRoles]string{"listener", "inherited listener", "member", "check", "log server", "service manager", "admin listener"}

// notInRole is for a role that no endpoint of a kind has.
func notInRole(*adder, spec.Endpoint) {}

// free is for an endpoint that needs nothing: it is bound by another process, or is this process, or UDP.
func free(*adder, spec.Endpoint) {}

// endpoints has what an endpoint needs, by its role and kind.
var endpoints = [numRoles]map[spec.Kind]func(*adder, spec.Endpoint){
	Listener: {
		spec.TCP: bindPorts, spec.UDP: bindPorts, spec.Unix: bindPath,
		// Clients have names of their own, to which the answers are sent: often abstract ones, which the kernel has chosen.
		spec.Unixgram: func(a *adder, e spec.Endpoint) { bindPath(a, e); a.add(Abstract) },
		spec.Echo:     notInRole, spec.Discard: notInRole,
	},
	Inherited: {
		spec.TCP: free, spec.UDP: free, spec.Unix: free,
		spec.Unixgram: func(a *adder, _ spec.Endpoint) { a.add(Abstract) },
		spec.Echo:     notInRole, spec.Discard: notInRole,
	},
	Upstream:  {spec.TCP: connectPorts, spec.UDP: send, spec.Unix: connectPath, spec.Unixgram: connectPath, spec.Echo: free, spec.Discard: free},
	Check:     {spec.TCP: connectPorts, spec.UDP: send, spec.Unix: connectPath, spec.Unixgram: connectPath, spec.Echo: free, spec.Discard: free},
	LogServer: {spec.TCP: connectPorts, spec.UDP: send, spec.Unix: connectPath, spec.Unixgram: connectPath, spec.Echo: notInRole, spec.Discard: notInRole},
	Manager:   {spec.TCP: notInRole, spec.UDP: notInRole, spec.Unix: notInRole, spec.Unixgram: connectPath, spec.Echo: notInRole, spec.Discard: notInRole},
	// It is bound before the process enters its sandbox, and its path is removed at the end.
	Admin: {spec.TCP: bindPorts, spec.UDP: notInRole, spec.Unix: writePath, spec.Unixgram: notInRole, spec.Echo: notInRole, spec.Discard: notInRole},
}

// endpoint adds what an endpoint needs; one without a kind needs nothing.
func (a *adder) endpoint(r Role, e spec.Endpoint) {
	if f := endpoints[r][e.Kind]; f != nil {
		f(a, e)
	}
}

func bindPorts(a *adder, e spec.Endpoint) {
	for i := range e.Ports() {
		port := e.At(i).Port
		if e.Kind == spec.TCP {
			a.port(Bind, port)
		}
		if port != 0 && port < a.in.FirstPort {
			a.port(LowPort, port)
		}
	}
	a.name(e.Host)
}

func bindPath(a *adder, e spec.Endpoint) {
	a.add(Unix)
	writePath(a, e)
}

func writePath(a *adder, e spec.Endpoint) {
	if strings.HasPrefix(e.Path, "/") {
		a.folder(Write, e.Path)
	}
}

func connectPorts(a *adder, e spec.Endpoint) {
	for i := range e.Ports() {
		a.port(Connect, e.At(i).Port)
	}
	a.name(e.Host)
}

func connectPath(a *adder, e spec.Endpoint) {
	a.add(Unix)
	if strings.HasPrefix(e.Path, "@") {
		a.add(Abstract)
	}
}

// send is for UDP, which no layer restricts.
func send(a *adder, e spec.Endpoint) { a.name(e.Host) }

// name adds what a lookup of a host needs, if it is a name. Answers that are too long for a datagram come over TCP.
func (a *adder) name(host string) {
	if host != "" && net.ParseIP(host) == nil {
		a.naming("names").port(Connect, 53)
	}
}

// server adds what a server of a registry needs.
func (a *adder) server(s string) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok { // of a Docker daemon
		connectPath(a, spec.Endpoint{Kind: spec.Unix, Path: path})
		return
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		a.add(AnyPort)
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
	a.port(Connect, uint16(port))
	a.name(u.Hostname())
}
