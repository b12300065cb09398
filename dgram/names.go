package dgram

import (
	"net"
	"net/netip"
	"strconv"
	"time"
)

// nameAge is for how long an interface keeps the name that was looked up. The
// net package uses the same.
const nameAge = 60 * time.Second

// zones turns the scope of a link-local address into a zone and back. It needs
// no lock: the reader has one and the writer another, each used by whoever has
// the turn. Looking up costs a system call or two, and is done once a minute.
type zones struct {
	since  time.Time
	names  map[uint32]string
	scopes map[string]uint32

	// Addresses seen lately, with their zone: attaching one to an address is a
	// look-up in a table of the whole process.
	last [16]zoned
}

type zoned struct {
	bare  netip.Addr
	scope uint32
	addr  netip.Addr
}

// refresh forgets names that may have changed. It is called once a batch, and
// only for batches with a zone in them.
func (z *zones) refresh() {
	if now := time.Now(); now.Sub(z.since) > nameAge {
		*z = zones{since: now, names: make(map[uint32]string), scopes: make(map[string]uint32)}
	}
}

// attach gives an address the zone that the kernel knows as scope.
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

// scope is the index that a zone stands for: an interface's name, or digits. ok
// is false where there is no such interface.
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

// maxPaths bounds the memory of paths. Beyond it all are forgotten.
const maxPaths = 1024

// paths turns the bytes of a Unix socket's path into a string without a new
// one each time.
type paths struct{ m map[string]string }

// get returns the path as the net package writes it: a leading NUL becomes @.
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

// withAddr is ap with another address.
func withAddr(ap netip.AddrPort, a netip.Addr) netip.AddrPort {
	return netip.AddrPortFrom(a, ap.Port())
}
