package hooks

import (
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// A flow that outlives its worker travels as names: the next worker may have another configuration,
// or be another version, so nothing refers to a position or a number. What a later version adds comes
// at the end, and an earlier version does not read it.
//
// Parts of the encoding that are not always there have a bit in its flags.
const (
	encodedLocal     = 1 << iota // the address that the client connected to
	encodedHello                 // the server name and protocols of a ClientHello
	encodedHeader                // the PROXY header received
	encodedSeries                // a series counts the flow
	encodedConnected             // an upstream was connected
	encodedMember                // the address of the member, if the flow's upstream is another one
	encodedUpstream              // the member has the address of the flow's upstream
	encodedRemoved               // what happens to flows of a route that a reload removes
	encodedNames                 // the names of the series, if they are others than those of the flow
	encodedStart                 // how a client of a listener with starttls has begun
	encodedProtocol              // what the client speaks by its first bytes
	encodedFirst                 // what else routes need of them; an upstream was not connected, and the next worker may have other routes
	encodedJA4                   // the fingerprint of a ClientHello
	encodedTLS                   // the client's TLS was terminated: what was agreed on
	encodedIdentity              // who the client is by its certificate
	encodedIDs                   // connection IDs of QUIC that were learned
	encodedQUIC                  // what else is known of a connection of QUIC
	encodedCame                  // how one was recognised that learns no ID
)

// maxEncodedNames bounds the bytes of the names of a certificate that are encoded.
const maxEncodedNames = 1024

// maxEncodedALPN bounds the protocols that are encoded: a ClientHello may have more than fits.
const maxEncodedALPN = 512

// encode is the hook that encodes what the daemon knows of a flow.
func (h *Hooks) encode(f *relay.Flow, e *hold.Encoder) {
	if p, ok := f.Value().(*State); ok {
		h.TLS.lingers(p)
		p.encode(e, f.Upstream())
	}
}

// encode is the inverse of encodedFlow.decode. upstream is that of the flow; nil: it has none.
func (p *State) encode(e *hold.Encoder, upstream *relay.Addr) {
	// A few bytes more take twice the memory: most flows have only what fits into their record.
	hello, header, series, protocol := p.hello.Load(), p.header, p.series.Load(), p.Protocol()
	first := p.clientTLS().first
	if p.target.Load() == nil || p.connected {
		first = nil
	}
	if hello != nil && hello.ServerName == "" && len(hello.SupportedProtos) == 0 {
		hello = nil
	}
	if p.connected {
		header = nil // its work is done
	}
	flags := uint64(0)
	set := func(bit uint64, is bool) {
		if is {
			flags |= bit
		}
	}
	set(encodedLocal, p.local != nil)
	set(encodedHello, hello != nil)
	set(encodedHeader, header != nil)
	set(encodedSeries, series != nil)
	set(encodedConnected, p.connected)
	n, member := p.Names(), p.member.Load()
	if member == nil {
		n.Member = p.Named()
	}
	isUpstream := member != nil && upstream != nil && *member.Addr() == *upstream
	set(encodedUpstream, isUpstream)
	set(encodedMember, member != nil && !isUpstream)
	target := p.target.Load()
	set(encodedRemoved, target != nil)
	set(encodedNames, series != nil && series.Key() != n.key())
	set(encodedStart, p.start != startNone)
	set(encodedProtocol, protocol != "")
	set(encodedFirst, first != nil)
	set(encodedJA4, p.JA4() != "")
	known := p.clientTLS()
	set(encodedTLS, known.terminated)
	set(encodedIdentity, known.terminated && known.identity != nil)
	conn, moved := known.conn, (*quicConn)(nil)
	switch {
	case conn == nil:
		conn = new(quicConn)
	case conn.came == cameByServer || conn.came == cameUnknown:
		conn, moved = new(quicConn), conn
	}
	set(encodedIDs, len(conn.ids) > 0)
	set(encodedQUIC, len(conn.ids) > 0 || conn.first.Len() > 0)
	set(encodedCame, moved != nil)
	e.Uint(flags)
	source, admission := p.admission.State()
	e.Uint(source)
	e.Uint(admission)
	for _, name := range [...]string{n.Listener, n.Route, n.Group, n.Member} {
		e.String(name)
	}
	e.String(p.reason.String())
	if flags&encodedMember != 0 {
		encodeAddr(e, member.Addr())
	}
	if flags&encodedRemoved != 0 {
		e.String(target.removed)
	}
	if flags&encodedNames != 0 {
		k := series.Key()
		for _, name := range [...]string{k.Listener, k.Route, k.Group, k.Member} {
			e.String(name)
		}
	}
	if p.local != nil {
		encodeAddr(e, p.local)
	}
	if hello != nil {
		e.Bytes([]byte(hello.ServerName))
		protos, size := hello.SupportedProtos, 0
		for i, name := range protos {
			if size += len(name); size > maxEncodedALPN {
				protos = protos[:i]
				break
			}
		}
		e.Uint(uint64(len(protos)))
		for _, name := range protos {
			e.Bytes([]byte(name))
		}
	}
	if header != nil {
		encodeHeader(e, header)
	}
	if p.start != startNone {
		e.Uint(uint64(p.start))
	}
	if protocol != "" {
		e.String(protocol)
	}
	if first != nil {
		e.String(first.Host())
		e.Bytes(first.Head())
		e.Uint(uint64(first.Silent()))
	}
	if flags&encodedJA4 != 0 {
		e.String(p.JA4())
	}
	if flags&encodedTLS != 0 {
		e.String(known.protocol)
	}
	if flags&encodedIdentity != 0 {
		encodeIdentity(e, known.identity)
	}
	if len(conn.ids) > 0 {
		e.Uint(uint64(len(conn.ids)))
		for i := range conn.ids {
			e.Bytes(conn.ids[i].id.Bytes())
		}
	}
	if flags&encodedQUIC != 0 {
		conn.encode(e)
	}
	if moved != nil {
		moved.encodeCame(e)
	}
}

// encodeIdentity encodes who a client is, without the certificate, which members are told of before.
func encodeIdentity(e *hold.Encoder, id *certs.Identity) {
	for _, text := range [...]string{id.Subject, id.Issuer, id.Serial} {
		e.Bytes([]byte(text[:min(len(text), maxEncodedNames/2)]))
	}
	left := maxEncodedNames
	for _, names := range [...][]string{id.URIs, id.DNS, id.Emails} {
		n := 0
		for ; n < len(names) && len(names[n]) <= left; n++ {
			left -= len(names[n])
		}
		e.Uint(uint64(n))
		for _, name := range names[:n] {
			e.Bytes([]byte(name))
		}
	}
}

func decodeIdentity(dec *hold.Decoder) *certs.Identity {
	id := &certs.Identity{Subject: string(dec.Bytes()), Issuer: string(dec.Bytes()), Serial: string(dec.Bytes())}
	for _, names := range [...]*[]string{&id.URIs, &id.DNS, &id.Emails} {
		for range min(dec.Uint(), maxEncodedNames) {
			*names = append(*names, string(dec.Bytes()))
		}
	}
	return id
}

// encodeRemoved returns what happens to the flows of a route that a reload removes, as a string that its
// flows share.
func encodeRemoved(r spec.LiveFlows) string {
	var e hold.Encoder
	e.String(r.What)
	e.Uint(uint64(r.After))
	e.Uint(uint64(r.Jitter))
	return string(e.Encoded())
}

func encodeAddr(e *hold.Encoder, a *relay.Addr) {
	text, _ := a.AppendText(nil)
	e.Bytes(text)
}

func decodeAddr(dec *hold.Decoder) (a relay.Addr, err error) {
	return a, a.UnmarshalText(dec.Bytes())
}

// encodeHeader encodes a PROXY header as it would be sent: in version 2, which has room for all of it.
func encodeHeader(e *hold.Encoder, h *admit.Header) {
	again := *h
	again.Version = 2
	b, err := again.Append(nil)
	if err != nil {
		b = nil // too long, which the limit of a received header rules out
	}
	e.Uint(uint64(h.Version))
	e.Bytes(b)
}

func decodeHeader(dec *hold.Decoder) (*admit.Header, error) {
	version := dec.Uint()
	b := slices.Clone(dec.Bytes())
	if read, ok := admit.ReadProxy2(b); ok && len(b) > 13 && b[13]&0x0F == 2 && read.Len == len(b) {
		return admit.ParseDatagram(b), nil
	}
	h, _, more, err := admit.ParseProxy(b)
	switch {
	case err != nil:
		return nil, err
	case more:
		return nil, hold.ErrEncoding
	}
	h.Version = int(version)
	return &h, nil
}
