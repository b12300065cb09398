package spec

import (
	"net/netip"
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
