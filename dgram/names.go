package dgram

import (
	"net"
	"net/netip"
	"strconv"
	"time"
)

// nameAge is how long the name of an interface is remembered, as in package net.
const nameAge = 60 * time.Second

// zones converts the scopes of link-local addresses to zones and back. It needs no lock: the
// reader and the writer each have their own, and use it with their lock held. A lookup makes
// one or two system calls, and is repeated once a minute.
type zones struct {
	since  time.Time
	names  map[uint32]string
	scopes map[string]uint32

	// Recent addresses with their zones. Without them, WithZone would look up the zone in a
	// table of the process each time.
	last [16]zoned
}

type zoned struct {
	bare  netip.Addr
	scope uint32
	addr  netip.Addr
}

// refresh forgets names that may have changed. It is called once per batch with a zone.
func (z *zones) refresh() {
	if now := time.Now(); now.Sub(z.since) > nameAge {
		*z = zones{since: now, names: make(map[uint32]string), scopes: make(map[string]uint32)}
	}
}

// attach returns an address with the zone of scope.
func (z *zones) attach(bare netip.Addr, scope uint32) netip.Addr {
	seen := &z.last[bare.As16()[15]%uint8(len(z.last))]
	if seen.bare != bare || seen.scope != scope {
		*seen = zoned{bare: bare, scope: scope, addr: bare.WithZone(z.name(scope))}
	}
	return seen.addr
}

func (z *zones) name(scope uint32) string {
	name, ok := z.names[scope]
	if !ok {
		name = strconv.FormatUint(uint64(scope), 10)
		if i, err := net.InterfaceByIndex(int(scope)); err == nil {
			name = i.Name
		}
		z.names[scope] = name
	}
	return name
}

// scope returns the index of a zone, which is the name of an interface or a number. ok is
// false if there is no such interface.
func (z *zones) scope(zone string) (scope uint32, ok bool) {
	if zone == "" {
		return 0, true
	}
	if scope, ok = z.scopes[zone]; ok {
		return scope, true
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		scope = uint32(i.Index)
	} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		scope = uint32(n)
	} else {
		return 0, false
	}
	z.scopes[zone] = scope
	return scope, true
}

// maxPaths is the maximum number of paths remembered. Beyond it all are forgotten.
const maxPaths = 1024

// paths converts Unix socket paths to strings, without allocating for a known path.
type paths struct{ m map[string]string }

// get returns the path as package net does: a leading NUL becomes @.
func (p *paths) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := p.m[string(b)]; ok {
		return s
	}
	if p.m == nil || len(p.m) >= maxPaths {
		p.m = make(map[string]string)
	}
	key := string(b)
	s := key
	if s[0] == 0 {
		s = "@" + s[1:]
	}
	p.m[key] = s
	return s
}

// withAddr returns ap with another address.
func withAddr(ap netip.AddrPort, a netip.Addr) netip.AddrPort {
	return netip.AddrPortFrom(a, ap.Port())
}
