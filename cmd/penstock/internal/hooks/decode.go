package hooks

import (
	"errors"
	"time"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/starttls"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// An encodedFlow is what encode has encoded of a flow, before it is looked up by name in the running
// configuration.
type encodedFlow struct {
	flags             uint64
	source, admission uint64 // see admit.Admission.State
	Names
	member  relay.Addr // first port of the member; zero: there is none
	removed spec.LiveFlows
	series  account.Key
	quic    encodedQUICConn
}

// decode is the hook that gives its state to a flow of an earlier worker.
func (h *Hooks) decode(f *relay.Flow, dec *hold.Decoder) error {
	p, e := &State{}, encodedFlow{}
	if err := e.decode(dec, p); err != nil {
		return err
	}
	if e.flags&encodedUpstream != 0 {
		if f.Upstream() == nil {
			return hold.ErrEncoding
		}
		e.member = *f.Upstream()
	}
	return h.reenter(f, p, &e)
}

// decode reads what encode has encoded; what needs no configuration is set in p.
func (e *encodedFlow) decode(dec *hold.Decoder, p *State) (err error) {
	e.flags = dec.Uint()
	e.source, e.admission = dec.Uint(), dec.Uint()
	e.Names = Names{dec.String(), dec.String(), dec.String(), dec.String()}
	p.reason = reasonNamed(dec.String())
	if e.flags&encodedMember != 0 {
		if e.member, err = decodeAddr(dec); err != nil {
			return err
		}
	}
	if e.flags&encodedRemoved != 0 {
		if e.removed, err = decodeRemoved(dec.String()); err != nil {
			return err
		}
	}
	if e.series = e.key(); e.flags&encodedNames != 0 {
		e.series = account.Key{Listener: dec.String(), Route: dec.String(), Group: dec.String(), Member: dec.String()}
	}
	if e.flags&encodedLocal != 0 {
		at, err := decodeAddr(dec)
		if err != nil {
			return err
		}
		p.local = &at
	}
	if e.flags&encodedHello != 0 {
		hello := &clientTLS{Hello: clienthello.Hello{ServerName: string(dec.Bytes())}}
		for range min(dec.Uint(), maxEncodedALPN) {
			hello.SupportedProtos = append(hello.SupportedProtos, string(dec.Bytes()))
		}
		p.hello.Store(hello)
	}
	if e.flags&encodedHeader != 0 {
		if p.header, err = decodeHeader(dec); err != nil {
			return err
		}
	}
	if e.flags&encodedStart != 0 {
		if p.start = start(min(dec.Uint(), uint64(startClear)+1)); p.start > startClear {
			return hold.ErrEncoding
		}
	}
	if e.flags&(encodedProtocol|encodedFirst) != 0 {
		var protocol, host string
		var head []byte
		var silent time.Duration
		if e.flags&encodedProtocol != 0 {
			protocol = dec.String()
		}
		if e.flags&encodedFirst != 0 {
			host, head, silent = dec.String(), dec.Bytes(), time.Duration(dec.Uint())
		}
		known := clientTLS{first: firstbytes.Given(protocol, host, head, silent)}
		known.first.Keep()
		if hello := p.hello.Load(); hello != nil {
			known.Hello = hello.Hello
		}
		p.hello.Store(&known)
	}
	if e.flags&encodedJA4 != 0 {
		known := *p.clientTLS()
		known.ja4 = dec.String()
		p.hello.Store(&known)
	}
	if e.flags&encodedTLS != 0 {
		known := *p.clientTLS()
		known.terminated, known.protocol = true, dec.String()
		if e.flags&encodedIdentity != 0 {
			known.identity = decodeIdentity(dec)
		}
		p.hello.Store(&known)
	}
	if e.flags&encodedIDs != 0 {
		if err := e.quic.decodeIDs(dec); err != nil {
			return err
		}
	}
	if e.flags&encodedQUIC != 0 {
		e.quic.decode(dec)
	}
	if e.flags&encodedCame != 0 {
		e.quic.decodeCame(dec)
	}
	p.connected = e.flags&encodedConnected != 0
	return dec.Err()
}

// decodeRemoved is the inverse of encodeRemoved.
func decodeRemoved(text string) (r spec.LiveFlows, err error) {
	dec := hold.NewDecoder([]byte(text))
	r.What = dec.String()
	r.After, r.Jitter = time.Duration(dec.Uint()), time.Duration(dec.Uint())
	return r, dec.Err()
}

// reasonNamed returns the reason with a name; none if this version does not know it.
func reasonNamed(name string) spec.Reason {
	for r := range spec.NumReasons {
		if r.String() == name {
			return r
		}
	}
	return spec.ReasonNone
}

// The errors of flows that are not connected yet: they would still need the settings of their listener,
// or a route.
var (
	errNoListener = errors.New("the listener is gone, and the flow is not connected yet")
	errNoRoute    = errors.New("the route is gone, no other one fits, and the flow is not connected yet")
)

// reenter completes a flow's state with the objects that its names stand for, and makes the flow count
// again where it counted before. Nothing is checked: the flow is open. What the configuration no longer
// has is replaced by objects that stand for it, so that the flow ends as a reload would have ended it.
func (h *Hooks) reenter(f *relay.Flow, p *State, e *encodedFlow) error {
	p.plan = h.planNamed(planOf(f), e.Listener)
	if p.plan.Gate == nil && !p.connected {
		return errNoListener
	}
	w := p.plan.targetNamed(e.Route, e.Group)
	switch {
	case e.Route == "":
	case !p.connected && (w == nil || w.followed != nil):
		// It goes where the running configuration says, as after a reload.
		if !h.route(f, p) {
			return errNoRoute
		}
	default:
		if w == nil {
			w = h.goneTarget(e, f.Timeouts())
		}
		p.target.Store(w)
		f.SetTimeouts(w.TimeoutsOf(f.ID()))
		f.SetDial(w.dial)
		if w.Route.Bandwidth > 0 {
			f.SetBandwidth(w.Route.Bandwidth)
		}
		// A flow that is not connected yet picks a member again. The one that it was about to connect to
		// has not failed, and must not count as one that has been tried.
		if p.connected && e.member.Network != 0 {
			p.member.Store(w.group.Restore(&p.lease, e.Names.Member, e.member))
		} else if to, err := spec.ParseUpstream(e.Names.Member); p.connected && err == nil {
			own := *w
			own.named = &namedHost{network: to.Kind, name: to.Host, port: to.Port, known: true, tried: 1}
			p.target.Store(&own)
		}
	}
	if p.plan.Gate != nil {
		p.admission = p.plan.Gate.Restore(e.source, e.admission)
		if t := p.hello.Load(); t != nil && t.identity != nil {
			t.admitted = p.plan.Gate.RestoreClient(t.identity.Who())
		}
	}
	if e.flags&encodedSeries != 0 {
		s := h.Accounting.counters.Series(e.series)
		s.Continue()
		p.series.Store(s)
	}
	h.relearn(f, p, &e.quic)
	f.SetValue(p)
	h.decoded.Add(1)
	return nil
}

// planNamed returns the plan that a flow was accepted under: now, the present one of its listener, or
// if the configuration has no listener of that name, one that stands for it.
func (h *Hooks) planNamed(now *Plan, name string) *Plan {
	if now != nil && now.Spec.Name == name {
		return now
	}
	gone := &Plan{Spec: &spec.Listener{Name: name}}
	if now != nil {
		gone.Gate = now.Gate
		gone.Spec.Datagrams = now.Spec.Datagrams
	}
	gone.starts = starttls.ByName(spec.PostgreSQL) // encoded flows do not say which, as there is no other one
	gone.routes = route.New(gone.Spec, nil)
	return gone
}

// targetNamed returns the target of a route that leads to a group; nil: there is none.
func (s *Plan) targetNamed(name, group string) *Target {
	if r := s.routesByName[name]; r != nil {
		for _, w := range s.choices[r].targets {
			if w.To != nil && w.To.Name == group {
				return w
			}
		}
	}
	return nil
}

// goneTarget returns a target that stands for a route that the configuration no longer has.
func (h *Hooks) goneTarget(e *encodedFlow, t relay.Timeouts) *Target {
	group := &spec.Group{Name: e.Group}
	return &Target{
		Route:    &spec.Route{Name: e.Route, To: spec.Only(group), Removed: e.removed},
		To:       group,
		group:    h.Groups.RestoreGroup(e.Group),
		dial:     &relay.DialConfig{},
		Timeouts: t,
		removed:  encodeRemoved(e.removed),
	}
}
