package hooks

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// encodedFields says of each field of a State what becomes of it when the next worker decodes the flow.
var encodedFields = map[string]string{
	"plan": "name", "target": "names", "member": "name and address", "series": "names", "admission": "state",
	"header": "value", "local": "value", "hello": "what routes need", "reason": "name", "start": "value", "connected": "value",
	"lease": "of the member", "endsTLS": "a flow with TLS is split, and does not end with the next worker; see TLSFlows.lingers", "downReason": "noted again when the end is scheduled",
}

// What encode writes, decode reads, field by field, with and without each of them.
func TestFlowEncoded(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[State]()) {
		if encodedFields[f.Name] == "" {
			t.Errorf("nobody has said whether %s is encoded", f.Name)
		}
	}
	at := func(text string) relay.Addr {
		return relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(text)}
	}
	set := upstream.NewSet(upstream.Options{})
	defer set.Close()
	removed := spec.LiveFlows{What: "drain", After: time.Minute, Jitter: time.Second}
	total := admit.NewTotal(spec.Limits{}, nil)
	gate := admit.NewController(total, &spec.Listener{}, nil, nil)
	local, member, other := at("192.0.2.1:80"), at("192.0.2.2:81"), at("192.0.2.3:82")
	header := &admit.Header{Version: 2, Client: netip.MustParseAddrPort("192.0.2.4:1"), To: netip.MustParseAddrPort("192.0.2.5:2"), SNI: "header.test"}
	newState := func() *State {
		return &State{plan: &Plan{Spec: &spec.Listener{Name: "a listener"}}}
	}
	target := func(p *State) {
		group := set.RestoreGroup("a group")
		p.target.Store(&Target{
			Route: &spec.Route{Name: "a route"}, To: &spec.Group{Name: "a group"}, group: group, removed: encodeRemoved(removed),
		})
		p.member.Store(group.Restore(&p.lease, "a member", member))
	}
	code := func(p *State, to *relay.Addr) (*encodedFlow, *State) {
		t.Helper()
		var enc hold.Encoder
		p.encode(&enc, to)
		for n := range len(enc.Encoded()) {
			if new(encodedFlow).decode(hold.NewDecoder(enc.Encoded()[:n:n]), new(State)) == nil {
				t.Errorf("%d bytes of %d are complete", n, len(enc.Encoded()))
			}
		}
		e, q := new(encodedFlow), new(State)
		if err := e.decode(hold.NewDecoder(enc.Encoded()), q); err != nil {
			t.Fatal(err)
		}
		return e, q
	}

	// Nothing but a listener: nothing else appears.
	e, q := code(newState(), nil)
	if want := (encodedFlow{Names: Names{Listener: "a listener"}, series: account.Key{Listener: "a listener"}}); !reflect.DeepEqual(*e, want) {
		t.Errorf("%+v, want %+v", *e, want)
	}
	if !reflect.DeepEqual(q, new(State)) {
		t.Errorf("state from nothing: %+v", q)
	}

	// Each start, alone and behind everything else.
	for s := startNone; s <= startClear; s++ {
		for _, all := range []bool{false, true} {
			p := newState()
			if p.start = s; all {
				target(p)
				p.local, p.header, p.reason = &local, header, spec.ReasonStartTLS
				p.hello.Store(&clientTLS{
					Hello: clienthello.Hello{ServerName: "hello.test", SupportedProtos: []string{"h2", "postgresql"}}, first: firstbytes.Given("tls", "", nil, 0),
					ja4: "a fingerprint",
				})
				p.series.Store(account.NewCounters().Series(account.Key{Listener: "l", Route: "r", Group: "g", Member: "m"}))
				p.admission = gate.Restore(7, 3)
			}
			e, q := code(p, &other)
			if q.start != s || q.connected {
				t.Errorf("start %d, connected %v, want %d", q.start, q.connected, s)
			}
			if !all {
				continue
			}
			if want := p.Names(); e.Names != want || want.Member != "a member" || e.member != member || e.flags&encodedUpstream != 0 {
				t.Errorf("%+v of %+v, flags %b", e.Names, want, e.flags)
			}
			if e.removed != removed || e.series != p.series.Load().Key() || e.flags&encodedSeries == 0 || e.source != 7 || e.admission != 3 {
				t.Errorf("%+v", *e)
			}
			if q.reason != p.reason || *q.local != local || !reflect.DeepEqual(q.header, header) {
				t.Errorf("reason %v, local %v, header %+v", q.reason, q.local, q.header)
			}
			if h := q.hello.Load(); h == nil || h.ServerName != "hello.test" || !slices.Equal(h.SupportedProtos, []string{"h2", "postgresql"}) {
				t.Errorf("hello %+v", h)
			} else if h.first.Protocol() != "tls" {
				t.Errorf("protocol %q", h.first.Protocol())
			} else if q.JA4() != "a fingerprint" {
				t.Errorf("fingerprint %q", q.JA4())
			}
		}
	}

	// A client that names no server and no protocol has a fingerprint as well.
	unnamed := newState()
	unnamed.hello.Store(&clientTLS{ja4: "of no name"})
	if _, q := code(unnamed, nil); q.JA4() != "of no name" {
		t.Errorf("fingerprint %q", q.JA4())
	}

	// What was agreed on with a client whose TLS was terminated, and who it is. Of names that are too many, the first ones.
	id := &certs.Identity{Subject: "CN=one", Issuer: "CN=authority", Serial: "7f", URIs: []string{"spiffe://test/one"}, DNS: []string{"one.test", strings.Repeat("n", maxEncodedNames)}, Emails: []string{"one@a.test"}}
	secure := newState()
	secure.hello.Store(&clientTLS{Hello: clienthello.Hello{ServerName: "hello.test"}, terminated: true, protocol: "h2", identity: id})
	_, q = code(secure, nil)
	want := *id
	want.DNS = want.DNS[:1]
	if h := q.clientTLS(); !h.terminated || h.protocol != "h2" || h.ServerName != "hello.test" || !reflect.DeepEqual(h.identity, &want) {
		t.Errorf("%+v, %+v", h, h.identity)
	}
	secure.hello.Store(&clientTLS{terminated: true})
	if _, q = code(secure, nil); !q.clientTLS().terminated || q.clientTLS().identity != nil {
		t.Errorf("%+v", q.clientTLS())
	}

	// How a connection of QUIC was recognised that learns no ID. What is not known here is not known.
	for _, c := range []struct {
		came, want quicCame
		id         string
	}{{cameByServer, cameByServer, "an ID"}, {cameUnknown, cameUnknown, ""}, {200, cameUnknown, "an ID"}} {
		conn := &quicConn{came: min(c.came, cameUnknown)}
		conn.version.Store(0x6b3343cf)
		conn.ledBy([]byte(c.id))
		moved := newState()
		moved.hello.Store(&clientTLS{conn: conn})
		e, _ = code(moved, nil)
		if c.came > cameUnknown {
			conn.came = c.came
			var enc hold.Encoder
			conn.encodeCame(&enc)
			e.quic.decodeCame(hold.NewDecoder(enc.Encoded()))
		}
		if got := e.quic; got.came != c.want || got.version != 0x6b3343cf || string(got.led.Bytes()) != c.id {
			t.Errorf("%+v, want %v by %q", got, c.want, c.id)
		}
	}

	// What routes need of a client's first bytes, until it is connected.
	for _, first := range []*firstbytes.Seen{
		firstbytes.Given("http", "a.test", []byte("GET / HTTP/1.1"), 0),
		firstbytes.Given("", "", []byte("HELO "), 0),
		firstbytes.Given("", "", nil, time.Second),
	} {
		for _, connected := range []bool{false, true} {
			p := newState()
			target(p)
			p.hello.Store(&clientTLS{first: first})
			p.connected = connected
			_, q := code(p, &member)
			got := q.clientTLS().first
			if got.Protocol() != first.Protocol() {
				t.Errorf("protocol %q, want %q", got.Protocol(), first.Protocol())
			}
			if connected {
				continue
			}
			if got == nil || got.Host() != first.Host() || string(got.Head()) != string(first.Head()) || got.Silent() != first.Silent() {
				t.Errorf("first bytes %+v, want %+v", got, first)
			}
		}
	}

	// A flow that is connected does not need its header any more, and its upstream is the member.
	p := newState()
	target(p)
	p.header, p.connected, p.start = header, true, startRequest
	p.series.Store(account.NewCounters().Series(p.Names().key()))
	if e, q := code(p, &member); !q.connected || q.header != nil || q.start != startRequest || e.flags&encodedUpstream == 0 || e.flags&(encodedMember|encodedNames) != 0 || e.series != p.Names().key() {
		t.Errorf("%+v, %+v", *e, q)
	}
	if e, _ := code(p, nil); e.member != member || e.flags&encodedUpstream != 0 {
		t.Errorf("without an upstream %+v", *e)
	}
}
