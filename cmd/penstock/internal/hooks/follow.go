package hooks

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/destination"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A namedHost is where a flow goes whose group has a destination instead of members. It belongs to the flow's loop, but for network, name
// and port, which do not change.
type namedHost struct {
	network relay.Network
	name    string // by original: the address
	port    uint16
	all     []netip.Addr // to which the flow may go
	addrs   []netip.Addr // of these, still to be tried
	known   bool         // addrs were looked up, and those that are refused left out; of a flow of an earlier worker, none is left to be tried
	tried   int
	took    time.Duration // time spent on failed attempts
	away    *relay.Addr   // where it was connected to when this host lost its route there; nil: nowhere
	wait    destination.Wait
	err     error // why the flow is refused; nil: it is not, or its reason says all
}

// url returns the name of the host as members are called.
func (n *namedHost) url() string {
	return n.network.String() + "://" + net.JoinHostPort(n.name, strconv.Itoa(int(n.port)))
}

// identify finds out where a flow goes whose group has a destination, and reports whether it may. The flow has a target of its own then, so
// that all other flows have nothing for this.
func (h *Hooks) identify(f *relay.Flow, p *State, w *Target) bool {
	own := *w
	own.named = &namedHost{network: relay.TCP, port: w.followed.Port}
	if p.plan.Spec.Datagrams {
		own.named.network = relay.UDP
	}
	if w.followed.By == spec.ByOriginal {
		p.reason = w.followed.original(p.localOf(f).AddrPort, own.named)
	} else {
		p.reason = w.followed.name(p, own.named)
	}
	p.target.Store(&own)
	return p.reason == spec.ReasonNone
}

// named returns where a flow goes instead of to a member; nil: to a member, or it has no target yet.
func (p *State) named() *namedHost {
	if w := p.target.Load(); w != nil {
		return w.named
	}
	return nil
}

// follow is the part of the hook upstream for a group with a destination.
func (h *Hooks) follow(f *relay.Flow, p *State, n *namedHost) *relay.Addr {
	w := p.target.Load()
	up, down := f.Transfers()
	p.moveTo(h.series(p), Moved(&up), Moved(&down))
	if !n.known {
		answer, status := h.lookUp(f, n)
		switch {
		case status == destination.Limited:
			p.reason = spec.ReasonNameLimit
		case status == destination.Known:
			p.reason = h.admitAddresses(w, n, answer)
		case f.Queue() == nil:
			return nil
		default: // a datagram flow, which was sniffed for as long as it may be; see awaitName
			p.reason, n.err = spec.ReasonNameTimeout, fmt.Errorf("%s: no answer in %v", n.name, p.plan.Spec.Sniff.Timeout)
		}
	}
	var to *relay.Addr
	if p.reason == spec.ReasonNone {
		to, p.reason = n.next(w.To)
	}
	if to == nil {
		return nil
	}
	if p.connected = p.plan.Spec.Datagrams; p.connected && w.proxy != nil { // connected tells of no more than an answer
		f.Preface(proxyHeader(f, p, w.proxy))
	}
	return to
}

// lookUp returns the addresses of the host, or has the flow wait for them.
func (h *Hooks) lookUp(f *relay.Flow, n *namedHost) (destination.Answer, destination.Status) {
	if a, err := netip.ParseAddr(n.name); err == nil {
		return destination.Answer{Addrs: []netip.Addr{a}}, destination.Known
	}
	if answer, ok := h.Names.Answer(&n.wait); ok {
		return answer, destination.Known
	}
	return h.Names.Ask(n.name, clientAddr(f), &n.wait, f.Ref())
}

// awaitName is the part of the hook sniff that waits for the addresses of a host, for datagrams, which cannot be queued: whenever another one
// comes, as those of QUIC do again and again, it looks whether they are there.
func (h *Hooks) awaitName(f *relay.Flow, p *State, n *namedHost, last bool) relay.SniffNext {
	if n.known || last {
		return relay.SniffDone
	}
	answer, status := h.lookUp(f, n)
	switch status {
	case destination.Pending:
		return relay.SniffMore
	case destination.Limited:
		p.reason = spec.ReasonNameLimit
	default:
		p.reason = h.admitAddresses(p.target.Load(), n, answer)
	}
	if p.reason != spec.ReasonNone {
		return relay.SniffRefuse
	}
	return relay.SniffDone
}

// next returns the address to try next, or why there is none. A flow that has lost its route goes back to its address, because its
// socket is still there; when it asks again, it may try all others again.
func (n *namedHost) next(g *spec.Group) (to *relay.Addr, reason spec.Reason) {
	switch reason = n.exhausted(g); {
	case reason == spec.ReasonNone:
		to = &relay.Addr{Network: n.network, AddrPort: netip.AddrPortFrom(n.addrs[0], n.port)}
		n.addrs = n.addrs[1:]
		n.tried++
	case n.away != nil:
		to, reason = n.away, spec.ReasonNone
		n.away, n.tried, n.took = nil, 1, 0
		n.addrs = slices.DeleteFunc(slices.Clone(n.all), func(a netip.Addr) bool { return a == to.AddrPort.Addr() })
	}
	return to, reason
}

// exhausted returns why no further address is tried; ReasonNone: one is.
func (n *namedHost) exhausted(g *spec.Group) spec.Reason {
	switch {
	case n.tried == 0:
	case len(n.addrs) == 0 || g.Retries == 0:
		return spec.ReasonConnectFailed
	case n.tried > g.Retries || g.Timeouts.Retries > 0 && n.took >= g.Timeouts.Retries:
		return spec.ReasonRetries
	}
	return spec.ReasonNone
}

// admitAddresses keeps the addresses to which a flow may go.
func (h *Hooks) admitAddresses(w *Target, n *namedHost, answer destination.Answer) spec.Reason {
	if answer.Err != nil {
		n.err = answer.Err
		return spec.ReasonNameFailed
	}
	reason := spec.ReasonNone
	for _, a := range answer.Addrs {
		why := destination.Refuses(a, w.followed.Networks)
		if own := h.ownListener(relay.Addr{Network: n.network, AddrPort: netip.AddrPortFrom(a, n.port)}); why == "" && own != "" {
			why, reason = "the address of the listener "+own, spec.ReasonLoop
		}
		if why == "" {
			n.addrs = append(n.addrs, a)
		} else if n.err == nil {
			n.err = fmt.Errorf("%s: %v is refused: %s", n.name, a, why)
		}
	}
	switch {
	case len(n.addrs) > 0:
		n.all = n.addrs
		n.known, n.err = true, nil
		return spec.ReasonNone
	case reason == spec.ReasonNone:
		return spec.ReasonAddressDenied
	}
	return reason
}

// ownListener returns the listener of this relay that has an address; empty: none has.
func (h *Hooks) ownListener(at relay.Addr) string {
	if h.OwnListener == nil {
		return ""
	}
	return h.OwnListener(at)
}

// followed are what a destination of a configuration is made of.
type followed struct {
	*spec.Destination
	names *destination.Names
}

func newFollowed(d *spec.Destination) *followed {
	if d == nil {
		return nil
	}
	return &followed{d, destination.NewNames(d.Allow)}
}

// original notes the address that a client has connected to. The reason is why it may not.
func (d *followed) original(at netip.AddrPort, n *namedHost) spec.Reason {
	if !at.IsValid() {
		n.err = errNoName[d.By]
		return spec.ReasonNoName
	}
	n.name = at.Addr().Unmap().String()
	if n.port = at.Port(); d.Port != 0 && d.Port != n.port {
		n.err = fmt.Errorf("port %d is not that of the destination, %d", n.port, d.Port)
		return spec.ReasonNameDenied
	}
	return spec.ReasonNone
}

// name finds out the name that a client asks for. The reason is why it may not have it.
func (d *followed) name(p *State, n *namedHost) spec.Reason {
	sent := ""
	switch d.By {
	case spec.ByHost:
		sent = p.clientTLS().first.Host()
	default:
		sent = p.clientTLS().ServerName
		if sent == "" && p.header != nil {
			sent = p.header.SNI
		}
	}
	name, ok := destination.Normalize(sent)
	switch {
	case sent == "":
		n.err = errNoName[d.By]
		return spec.ReasonNoName
	case !ok:
		n.err = fmt.Errorf("%.256q is not the name of a host", sent)
		return spec.ReasonNoName
	}
	n.name = name
	if !d.names.Allow(name) {
		n.err = fmt.Errorf("%s is not in allow of the destination", name)
		return spec.ReasonNameDenied
	}
	return spec.ReasonNone
}

var errNoName = map[string]error{
	spec.BySNI:      errors.New("the client has sent no server name"),
	spec.ByHost:     errors.New("the client has asked for no host by HTTP"),
	spec.ByOriginal: errors.New("the address that the client has connected to is not known"),
}

// outdated reports whether a reload has given the target's group a destination, another one, or none any more: the flow is then routed again,
// unless it has begun to connect. A group that was removed has none.
func (w *Target) outdated() bool {
	return w.To != nil && w.group.Config().Destination != w.To.Destination
}

// host returns the host with which the certificate of the flow's upstream is compared.
func (p *State) host() string {
	if n := p.named(); n != nil {
		return n.name
	}
	return p.member.Load().Host()
}

// Named returns the host to which the flow goes, as members are called; empty: its group has members, or the host is not known.
func (p *State) Named() string {
	if n := p.named(); n != nil && n.name != "" {
		return n.url()
	}
	return ""
}

// NameIn reports whether the destination of the flow's group, among these, has the name of the host to which the flow goes. It is true of a
// flow that goes to a member, and of a group that has no destination any more, whose flows the names of routes tell about.
func (p *State) NameIn(groups []*spec.Group) bool {
	n := p.named()
	if n == nil || n.name == "" {
		return true
	}
	to := p.target.Load().To.Name
	i := slices.IndexFunc(groups, func(g *spec.Group) bool { return g.Name == to })
	if i < 0 || groups[i].Destination == nil || groups[i].Destination.By == spec.ByOriginal {
		return i >= 0
	}
	return destination.NewNames(groups[i].Destination.Allow).Allow(n.name)
}

// leave ends what a flow with a destination still waits for, and adds to its record.
func (h *Hooks) leave(p *State, e *account.Entry) {
	n := p.named()
	if n == nil {
		return
	}
	h.Names.Leave(&n.wait)
	e.Member = p.Named()
	switch {
	case e.Cause == relay.CauseQueueTimeout:
		e.Reason, e.Err = spec.ReasonNameTimeout, fmt.Errorf("%s: no answer in %v", n.name, p.target.Load().followed.Timeout)
	case e.Err == nil:
		e.Err = n.err
	}
}
