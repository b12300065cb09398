package upstream

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// DNS discovers members by A and AAAA, or SRV records. Lookups use package net's own resolver: it
// reads /etc/resolv.conf (again when it changes) and /etc/hosts, follows search lists, falls back
// to TCP, and checks answers. DNS reads the messages as they pass for the one thing that package
// net does not return: the TTL.
//
// A lookup is repeated when its TTL has passed, after one second at the earliest and
// spec.Discover.Every at the latest. After a failure, which includes a name that does not exist,
// it is repeated after a second, doubled each time up to Every.
type DNS struct {
	// Dial connects to a name server; nil: net.Dialer. See net.Resolver.Dial.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	minInterval          = time.Second
	defaultInterval      = 30 * time.Second
	lookupTimeout        = 15 * time.Second // of one lookup with all its queries
	maxConcurrentLookups = 16               // names of an SRV answer that are looked up at the same time
)

var errNoAddress = errors.New("the name has no address")

// Discoverer is for Options.Discoverer.
func (d DNS) Discoverer(what spec.Discover) Discoverer { return dnsWatch{d, what} }

type dnsWatch struct {
	dns   DNS
	query spec.Discover
}

func (w dnsWatch) Watch(ctx context.Context, update func([]Target, error)) {
	every := w.query.Every
	if every <= 0 {
		every = defaultInterval
	}
	retry := minInterval
	for {
		targets, ttl, err := w.lookup(ctx)
		if ctx.Err() != nil {
			return
		}
		update(targets, err)
		wait := min(every, max(ttl, minInterval))
		if err != nil {
			wait = min(every, retry)
			retry = 2 * wait
		} else {
			retry = minInterval
		}
		select {
		case <-time.After(wait + rand.N(wait/8+1)):
		case <-ctx.Done():
			return
		}
	}
}

// lookup looks up the name once. ttl is the smallest of all records; without records, as from
// /etc/hosts, it is the greatest duration.
func (w dnsWatch) lookup(ctx context.Context) (targets []Target, ttl time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, seen := w.dns.resolver()
	if w.query.Service != "" {
		targets, err = w.services(ctx, r)
	} else {
		var ips []netip.Addr
		ips, err = lookupIPs(ctx, r, w.query.Host)
		targets = w.targets(ips, w.query.Port, 1, false)
	}
	return targets, seen.get(), err
}

// Addresses returns the addresses of a name, IPv4 first and otherwise as the resolver orders them, and how long they hold; without records,
// as from /etc/hosts, it is the greatest duration. A name with a dot is complete: search lists are not used, so that nobody gets the address
// of another name. One without is looked up as every program does, because /etc/hosts has it without a dot at the end.
func (d DNS) Addresses(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	r, seen := d.resolver()
	if strings.Contains(name, ".") {
		name += "."
	}
	ips, err := r.LookupNetIP(ctx, "ip", name)
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return ips, seen.get(), err
}

// resolver returns a resolver for one lookup, and what has the TTL of its answers. It is a new one each time: package net shares
// connections between lookups of one name with the same resolver.
func (d DNS) resolver() (*net.Resolver, *ttlTracker) {
	seen := &ttlTracker{least: 1<<63 - 1}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dial := d.Dial
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if p, ok := c.(net.PacketConn); ok {
			return &packetConn{Conn: c, PacketConn: p, ttls: seen}, nil
		}
		return &streamConn{Conn: c, ttls: seen}, nil
	}}
	return r, seen
}

func (w dnsWatch) targets(ips []netip.Addr, port uint16, weight int, backup bool) (ts []Target) {
	for _, ip := range ips {
		addr := relay.Addr{Network: w.query.Network, AddrPort: netip.AddrPortFrom(ip, port)}
		ts = append(ts, Target{Addr: addr, Weight: weight, Backup: backup})
	}
	return ts
}

// services looks up SRV records and the addresses of their targets. Those of the first priority
// are primary members, all others backups. If a weight is above 256, all are scaled (RFC 2782).
func (w dnsWatch) services(ctx context.Context, r *net.Resolver) ([]Target, error) {
	_, records, err := r.LookupSRV(ctx, "", "", w.query.Service)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(records, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
	})
	records = records[:min(len(records), maxTargets)]
	most := uint16(256)
	for _, s := range records {
		most = max(most, s.Weight)
	}
	ips, errs := make([][]netip.Addr, len(records)), make([]error, len(records))
	var wg sync.WaitGroup
	room := make(chan struct{}, maxConcurrentLookups)
	for i, s := range records {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			ips[i], errs[i] = lookupIPs(ctx, r, s.Target)
		})
	}
	wg.Wait()
	var ts []Target
	for i, s := range records {
		var no *net.DNSError
		switch err := errs[i]; {
		case errors.As(err, &no) && no.IsNotFound: // the host of a record no longer exists
		case err != nil:
			return nil, err
		}
		weight := max(1, int(s.Weight)*256/int(most))
		ts = append(ts, w.targets(ips[i], s.Port, weight, s.Priority > records[0].Priority)...)
	}
	if len(ts) == 0 {
		return nil, errNoAddress
	}
	return ts, nil
}

// A ttlTracker keeps the smallest TTL of the answers that it has observed.
type ttlTracker struct {
	mu    sync.Mutex
	least time.Duration
}

func (t *ttlTracker) get() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.least
}

// observe reads a message. Malformed messages are left to the resolver.
func (t *ttlTracker) observe(msg []byte) {
	var p dnsmessage.Parser
	if h, err := p.Start(msg); err != nil || !h.Response || p.SkipAllQuestions() != nil {
		return
	}
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			return
		}
		ttl := time.Duration(h.TTL) * time.Second
		if h.TTL > 1<<31-1 { // RFC 2181, section 8
			ttl = 0
		}
		t.mu.Lock()
		t.least = min(t.least, ttl)
		t.mu.Unlock()
		if p.SkipAnswer() != nil {
			return
		}
	}
}

// A packetConn reads one message per packet (RFC 1035, section 4.2.1). The resolver recognizes it
// as a net.PacketConn.
type packetConn struct {
	net.Conn
	net.PacketConn
	ttls *ttlTracker
}

func (c *packetConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.ttls.observe(b[:max(n, 0)])
	return n, err
}

func (c *packetConn) Close() error                       { return c.Conn.Close() }
func (c *packetConn) LocalAddr() net.Addr                { return c.Conn.LocalAddr() }
func (c *packetConn) SetDeadline(t time.Time) error      { return c.Conn.SetDeadline(t) }
func (c *packetConn) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(t) }
func (c *packetConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(t) }

// A streamConn reads messages that are preceded by their length (RFC 1035, section 4.2.2). Package
// net reads one answer from it.
type streamConn struct {
	net.Conn
	ttls     *ttlTracker
	buffered []byte
}

func (c *streamConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.buffered = append(c.buffered, b[:max(n, 0)]...)
	if len(c.buffered) >= 2 {
		if size := int(c.buffered[0])<<8 | int(c.buffered[1]); len(c.buffered) >= 2+size {
			c.ttls.observe(c.buffered[2 : 2+size])
			c.buffered = c.buffered[2+size:]
		}
	}
	return n, err
}
