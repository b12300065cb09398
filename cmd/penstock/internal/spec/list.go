package spec

import (
	"bytes"
	"net/netip"
	"strings"
	"time"
)

// ListPrefix is what the name of a list has in front of it where networks may be, too.
const ListPrefix = "list:"

// A Network is a range of addresses, or the name of a list of them.
type Network struct {
	netip.Prefix        // not valid if List is set
	List         string // empty: it is the prefix
}

// String returns the network as the configuration has it.
func (n Network) String() string {
	if n.List != "" {
		return ListPrefix + n.List
	}
	return n.Prefix.String()
}

// NetworksOf returns prefixes as networks.
func NetworksOf(prefixes ...netip.Prefix) (list []Network) {
	for _, p := range prefixes {
		list = append(list, Network{Prefix: p})
	}
	return list
}

// A List is a list of networks that changes while the daemon runs. It is comparable. One of File, URL, Etcd and CrowdSec is set.
type List struct {
	Name     string
	File     string
	URL      string   // http or https
	Etcd     string   // a prefix of keys
	CrowdSec string   // the server of CrowdSec's local API
	Registry Registry // of Etcd
	KeyFile  string   // of URL: a bearer token; of CrowdSec: the key of a bouncer
	CA       string
	Every    time.Duration // 0: as the kind is
	Lines    string        // the words of each line of a text, of which * is the network; empty: "*"
}

// Interval returns the time from one look to the next.
func (l *List) Interval() time.Duration {
	switch {
	case l.Every != 0:
		return l.Every
	case l.File != "":
		return 2 * time.Second
	case l.CrowdSec != "":
		return 10 * time.Second
	}
	return 5 * time.Minute
}

// NetworkIn returns the network in a line of the list's text. It returns false if the line has other words than those of the list. What is not
// known is whether what it returns is a network.
func (l *List) NetworkIn(line []byte) (network []byte, ok bool) {
	line, rest, _ := bytes.Cut(line, []byte(";"))
	if l.Lines == "" {
		return bytes.TrimSpace(line), true
	}
	if rest = bytes.TrimSpace(rest); len(rest) > 0 && rest[0] != '#' {
		return nil, false // another one on the same line
	}
	for word := range strings.FieldsSeq(l.Lines) {
		line = bytes.TrimLeft(line, " \t\r")
		end := bytes.IndexAny(line, " \t\r")
		if end < 0 {
			end = len(line)
		}
		if word == "*" {
			network = line[:end]
		} else if string(line[:end]) != word {
			return nil, false
		}
		line = line[end:]
	}
	return network, len(network) > 0 && len(bytes.TrimSpace(line)) == 0
}
