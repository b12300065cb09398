// Package confine derives from a configuration what the process that relays may do once it reads what clients send:
// the paths that it opens, the ports that it connects to and binds, and the capabilities that it keeps. It is the policy
// of package sandbox, made from values; only [Sandbox.Enter] changes the process.
//
// A policy consists of needs. Each need has the key of the configuration that it comes from, so that a message can
// name it, when a later configuration has a need that the policy did not have.
package confine

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a need is for.
type Kind uint8

// The kinds of needs.
const (
	Read      Kind = iota // a file or folder is read
	Write                 // a file is written, or files are made in a folder
	Connect               // TCP connections to a port
	AnyPort               // TCP connections to ports that are not known
	Bind                  // a TCP port is bound
	LowPort               // a port below net.ipv4.ip_unprivileged_port_start is bound
	NetAdmin              // CAP_NET_ADMIN
	NetRaw                // CAP_NET_RAW
	Abstract              // abstract Unix sockets of others
	Unix                  // new Unix sockets
	Multipath             // sockets of Multipath TCP
	Modes                 // permissions of a path
)

// Need is one thing that a configuration needs.
type Need struct {
	Kind Kind
	Path string // of Read and Write: absolute
	Port uint16 // of Connect, Bind and LowPort
	For  string // the key that needs it, or what else does
}

// String returns what is needed, and for what.
func (n Need) String() string {
	what := ""
	switch n.Kind {
	case Read:
		what = "reading " + n.Path
	case Write:
		what = "writing " + n.Path
	case Connect:
		what = "connecting to port " + strconv.Itoa(int(n.Port))
	case AnyPort:
		what = "connecting to any port"
	case Bind:
		what = "binding port " + strconv.Itoa(int(n.Port))
	case LowPort:
		what = "binding port " + strconv.Itoa(int(n.Port)) + ", a privileged one"
	case NetAdmin:
		what = "CAP_NET_ADMIN"
	case NetRaw:
		what = "CAP_NET_RAW"
	case Abstract:
		what = "abstract Unix sockets"
	case Unix:
		what = "Unix sockets"
	case Multipath:
		what = "Multipath TCP"
	case Modes:
		what = "changing the permissions of paths"
	}
	return what + " (" + n.For + ")"
}

// Needs is a list of needs.
type Needs []Need

func (n *Needs) add(kind Kind, path string, port uint16, format string, args ...any) {
	*n = append(*n, Need{kind, path, port, fmt.Sprintf(format, args...)})
}

// folder adds the folder of a path, and that of the file to which it leads: a file is replaced by renaming another one
// to its path, and permission for a file is permission for the one that is there now.
func (n *Needs) folder(kind Kind, path, format string, args ...any) {
	if !filepath.IsAbs(path) {
		return
	}
	path = filepath.Clean(path)
	if device(path) {
		n.add(kind, path, 0, format, args...)
		return
	}
	n.add(kind, filepath.Dir(path), 0, format, args...)
	if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(real) != filepath.Dir(path) {
		if device(real) {
			n.add(kind, real, 0, format, args...)
		} else {
			n.add(kind, filepath.Dir(real), 0, format, args...)
		}
	}
}

// device reports whether a path is one that nobody replaces, such as /dev/stdout.
func device(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")
}

// has reports whether there is a need of a kind.
func (n Needs) has(kind Kind) bool {
	return slices.ContainsFunc(n, func(a Need) bool { return a.Kind == kind })
}

// paths returns the paths of a kind, each once, without those beneath others.
func (n Needs) paths(kind Kind) (list []string) {
	for _, a := range n {
		if a.Kind == kind {
			list = append(list, a.Path)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	var out []string
	for _, p := range list {
		if !slices.ContainsFunc(out, func(above string) bool { return beneath(p, above) }) {
			out = append(out, p)
		}
	}
	return out
}

// ports returns the ports of a kind, each once.
func (n Needs) ports(kind Kind) (list []uint16) {
	for _, a := range n {
		if a.Kind == kind {
			list = append(list, a.Port)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// First returns what the first need of a kind is for; empty: there is none.
func (n Needs) First(kind Kind) string {
	for _, a := range n {
		if a.Kind == kind {
			return a.For
		}
	}
	return ""
}

// beneath reports whether a path is another one, or beneath it.
func beneath(path, above string) bool {
	return path == above || above == "/" || strings.HasPrefix(path, above+"/")
}

// sorted returns n in an order that does not depend on how it came about, each need once.
func (n Needs) sorted() Needs {
	slices.SortFunc(n, func(a, b Need) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Port, b.Port), cmp.Compare(a.For, b.For))
	})
	return slices.Compact(n)
}
