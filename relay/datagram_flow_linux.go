package relay

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
)

// datagramFlow is one client's address, the local address that it wrote to, and a
// connected socket towards the upstream.
//
//	first datagram ─▶ open ──▶ ended
//	      │           ▲ │  ▲
//	      └▶ sniffing ┘ └──┘ next upstream, after an ICMP error
//
// It has no state elsewhere, but for its place in the port's table, in the
// loop's timer wheel and in one of two lists by age.
type datagramFlow struct {
	Flow
	fd                int32 // towards the upstream; -1: built in
	own               int32 // towards the client; -1: the port's is
	answered          bool  // the upstream has answered at least once
	verified          bool  // the client has sent something since a reply was sent to it; it does not forge its address, then
	blocked           bool  // replies are not read while the port's socket is full
	v6                bool  // the client is an IPv6 one, and not 4-in-6
	noting            bool  // in datagrams.noting
	suspect           bool  // the process before died while it handled the flow
	width             uint8
	streak            int8
	why               [2]datapath.Why
	nameLen           uint8
	tos               uint8    // of the socket towards the upstream, if DatagramConfig.TOS needs it
	name              [28]byte // the client's address as the kernel wrote it; a Unix one is in path
	returned          int64    // bytes of replies, as long as DatagramConfig.Amplification bounds them
	ownDrops          uint32   // SO_RXQ_OVFL's last reading of its own socket
	astray            bool     // it was restored to another socket than its own, or the sockets have changed: its client's datagrams may reach another loop
	sniffed           bool     // its client is; see datagrams.sniffs
	watched           bool     // Hooks.Sniff goes on seeing what its client sends
	answering         bool     // Hooks.Answered sees what its upstream sends
	path              string
	localAddr         netip.Addr // that the client wrote to, where the listener is bound to none
	zone              uint32     // interface, where localAddr is a link-local address
	drops             uint32     // that of the socket towards the upstream
	port              *datagramPort
	runs              [2]runLimit
	moved             [2]moved
	requests, answers int64             // datagrams sent to the present upstream, and received from it
	held              []byte            // what the upstream's socket has not taken yet, or waits for an upstream; see holdBack and datagramSniff
	first, last       int16             // its messages in the batch at hand; -1: none
	pending           int16             // its items in the port's outbox
	sentRuns          uint8             // bits, by direction: several datagrams have left as one message
	address           addressState      // whether its client's address has other flows
	settings          *datagramSettings // nil: none
	newer, older      *datagramFlow
}

// addressState says whether the address of a flow's client has other flows.
type addressState uint8

const (
	addressAlone   addressState = iota // it has none
	addressDivided                     // it may have: Hooks.Choose is asked
	addressSeveral                     // it has: they are in datagramPort.several
)

func (f *datagramFlow) setDivided(is bool) {
	if is {
		f.address = addressDivided
	}
}

// divided reports whether the datagrams of the client's address are not all the flow's.
func (f *datagramFlow) divided() bool { return f.address != addressAlone }

// datagramSniff is what a flow has as long as its client is sniffed.
type datagramSniff struct {
	most  int // bytes that are held, without their headers
	held  int
	until time.Duration // by the loop's clock
}

// datagramSettings is what hooks have set for a flow, and a proxy has said of it, and what one without a route needs; few flows have any.
type datagramSettings struct {
	pace    pace
	preface preface
	name    flowName
	asked   time.Duration // when it asked for another upstream, because this host has no route to its own; 0: it has not
}

// moved is what one direction has carried.
type moved struct {
	read, written      int64 // bytes
	datagrams, dropped int64 // written, and dropped
}

func (d *datagrams) mayDial(*Flow) bool { return true }

func (d *datagrams) limit(f *Flow) *pace {
	return &d.settingsOf(d.of(f)).pace
}

func (d *datagrams) rate(f *Flow) int64 {
	if x := d.of(f).settings; x != nil {
		return x.pace.rate
	}
	return 0
}

func (d *datagrams) prefaceOf(f *Flow) *preface {
	if df := d.of(f); df.prefaced() {
		return &df.settings.preface
	}
	return nil
}

func (d *datagrams) nameOf(f *Flow) *flowName {
	if df := d.of(f); df.named() {
		return &df.settings.name
	}
	return nil
}

// prefaced reports whether something is put in front of the flow's next datagram to the upstream.
func (f *datagramFlow) prefaced() bool { return f.settings != nil && len(f.settings.preface.b) > 0 }

// settingsOf returns a flow's settings, and has it get some first if it has none.
func (d *datagrams) settingsOf(f *datagramFlow) *datagramSettings {
	if f.settings == nil {
		f.settings = d.share.settings.Get()
	}
	return f.settings
}

// upstreamFamily is the family of the socket towards the upstream, as far as a
// receive has to know it.
func (f *datagramFlow) upstreamFamily() sys.Family {
	if f.to.Network == Unixgram {
		return sys.Unix
	}
	return sys.IPv6
}

// toV6 reports whether what is sent to the upstream travels as IPv6.
func (f *datagramFlow) toV6() bool {
	ip := f.to.AddrPort.Addr()
	return ip.Is6() && !ip.Is4In6()
}

// builtin reports whether the upstream is inside.
func (f *datagramFlow) builtin() bool { return f.fd < 0 }

func addrPort(name []byte) netip.AddrPort {
	ap, scope := sys.GetAddrPort(name)
	if scope != 0 {
		ap = netip.AddrPortFrom(ap.Addr().WithZone(itoa(scope)), ap.Port())
	}
	return ap
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// unixPath is a path as Addr has it, from an address that the kernel wrote.
func unixPath(name string) string {
	b := sys.GetPath([]byte(name))
	if len(b) > 0 && b[0] == 0 {
		return "@" + string(b[1:])
	}
	return string(b)
}

// newFlow takes a slot for a new flow of a port.
func (d *datagrams) newFlow(p *datagramPort) *datagramFlow {
	f, r := d.slab.Take()
	f.init(d, r, d.loop.Now)
	f.inherit(p.listener)
	f.fd, f.own, f.port, f.first, f.width = -1, -1, p, -1, 1
	if d.keep != nil {
		d.keep.begun(r)
	}
	return f
}
