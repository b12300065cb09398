package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// What both kinds of flows write into their records. Beside the fixed fields, a record has bytes:
// those of the engine, as one value of hold.Encoder.Bytes, and then those of the hooks.

// The versions of the engine's part of the bytes. The second one has what is put in front of datagrams, and is only written where
// there is something: a process that knows the first one only cannot go on with such a flow.
const (
	encodingVersion         = 1
	encodingVersionPrefaced = 2
	encodingVersionNamed    = 3 // what a proxy has said of a flow, likewise
	encodingVersionInner    = 4 // which sockets are inner ones, likewise
	encodingVersionTLS      = 5 // which sockets have TLS in the kernel, likewise
)

// errEncodedTooMuch is for those who look for the reason why a flow is not kept.
var errNotEncoded = errors.New("relay: what the hooks encode does not fit")

// The bits of the number that follows the version: values that are not zero follow.
const (
	encodedAttempts = 1 << iota
	encodedQueued
	encodedClient
	encodedUpstream
	encodedTimeouts
	encodedRate
	encodedPreface
	encodedPrefaceEach
	encodedName
	encodedNameEach
	encodedNameClient
	encodedInner // or TLS in the kernel
)

// encodedOne are the bits of Flow.one that are encoded.
const encodedOne = oneInner | oneInner<<1 | oneKernelTLS | oneKernelTLS<<1

// writeRecord writes what both kinds of flows have in common. name and encode are those of a pair
// given to Relay.
func (t *tenant) writeRecord(f *Flow, r ledger.Record, name string, encode func(*hold.Encoder)) error {
	k := t.keep
	r.SetStart(k.base + int64(f.start))
	r.SetFirstByte(int64(f.firstByte))
	r.SetCause(uint8(f.cause))
	ref, ok := uint32(0), false
	if f.listener != nil {
		ref, ok = k.ledger.Intern(string(k.addrText(f.listener.addr)))
	} else {
		ref, ok = k.ledger.Intern(name)
	}
	if !ok {
		return errNotEncoded
	}
	r.SetListener(ref)
	return t.writeBytes(f, r, encode)
}

// writeBytes writes what has no fixed size, in as few bytes as possible: a record has room for few.
func (t *tenant) writeBytes(f *Flow, r ledger.Record, encode func(*hold.Encoder)) error {
	e := &t.keep.encoder
	e.Reset()
	rate, flags := f.owner.rate(f), uint64(0)
	set := func(bit uint64, is bool) {
		if is {
			flags |= bit
		}
	}
	set(encodedAttempts, f.attempts != 0)
	set(encodedQueued, f.queued != 0)
	set(encodedClient, f.client != nil)
	set(encodedUpstream, f.to != nil)
	set(encodedTimeouts, f.cfg == nil || *f.timeouts != f.cfg.Timeouts)
	set(encodedRate, rate != 0)
	version, front := uint64(encodingVersion), f.owner.prefaceOf(f)
	if front != nil {
		version = encodingVersionPrefaced
		set(encodedPreface, true)
		set(encodedPrefaceEach, front.each)
	}
	name := f.owner.nameOf(f)
	if name != nil {
		version = encodingVersionNamed
		set(encodedName, true)
		set(encodedNameEach, name.each)
		set(encodedNameClient, name.client.IsValid())
	}
	inner := f.one & encodedOne
	if inner != 0 {
		version = encodingVersionInner
		if inner&(oneKernelTLS|oneKernelTLS<<1) != 0 {
			version = encodingVersionTLS
		}
		set(encodedInner, true)
	}
	e.Uint(version)
	e.Uint(flags)
	e.Uint(uint64(f.connect))
	encodeAddress(e, f.owner.remote(f, sideClient))
	if f.attempts != 0 {
		e.Uint(uint64(f.attempts))
	}
	if f.queued != 0 {
		e.Uint(uint64(f.queued))
	}
	if f.client != nil {
		encodeAddress(e, *f.client)
	}
	if f.to != nil {
		t.encodeUpstream(f, e)
	}
	if flags&encodedTimeouts != 0 {
		k := t.keep // many flows share them
		k.text = k.text[:0]
		for _, d := range f.timeouts.all() {
			k.text = binary.AppendUvarint(k.text, uint64(*d))
		}
		e.String(string(k.text))
	}
	if rate != 0 {
		e.Uint(uint64(rate))
	}
	if front != nil {
		e.Bytes(front.b)
	}
	if name != nil {
		if name.client.IsValid() {
			encodeAddress(e, Addr{Network: UDP, AddrPort: name.client})
			encodeAddress(e, Addr{Network: UDP, AddrPort: name.to})
		}
		e.Bytes(name.reply.b)
	}
	if inner != 0 {
		e.Uint(uint64(inner))
		encodeTLS(e, f.owner.tls(f, sideClient))
		encodeTLS(e, f.owner.tls(f, sideUpstream))
	}
	n := len(e.Encoded())
	switch {
	case f.listener == nil:
		if encode != nil {
			encode(e)
		}
	case f.cfg.Hooks.Encode != nil:
		f.cfg.Hooks.Encode(f, e)
	}
	if b := e.Encoded(); len(b)-n > hold.MaxEncoded || !t.keep.ledger.SetBlob(r, b) {
		return errNotEncoded
	}
	return nil
}

// encodeUpstream encodes what String would, of an address that many flows share.
func (t *tenant) encodeUpstream(f *Flow, e *hold.Encoder) {
	if f.listener != nil {
		if ref, ok := t.keep.Intern(string(t.keep.addrText(*f.to))); ok {
			e.Uint(uint64(ref) + 1)
			return
		}
	}
	e.Uint(0) // each pair has another address
	encodeAddress(e, *f.to)
}

// addrText returns an address as text, which is valid until the next call.
func (k *keeping) addrText(a Addr) []byte {
	k.text, _ = a.AppendText(k.text[:0])
	return k.text
}

// How an address is encoded: as text, or as the bytes of the IP address and the port.
const (
	addressText = iota
	addressTCP4
	addressTCP6
	addressUDP4
	addressUDP6
)

// encodeAddress encodes an address that few flows share.
func encodeAddress(e *hold.Encoder, a Addr) {
	ip, form := a.AddrPort.Addr(), uint64(addressText)
	switch {
	case ip.Zone() != "" || !ip.IsValid():
	case a.Network == TCP:
		form = addressTCP4
	case a.Network == UDP:
		form = addressUDP4
	}
	if form != addressText && !ip.Is4() {
		form++
	}
	e.Uint(form)
	var b [128]byte
	switch form {
	case addressText:
		text, _ := a.AppendText(b[:0])
		if len(text) >= len(b) { // addresses are shorter
			text = nil
		}
		e.Bytes(text)
		return
	case addressTCP4, addressUDP4:
		four := ip.As4()
		e.Fixed(four[:])
	default:
		sixteen := ip.As16()
		e.Fixed(sixteen[:])
	}
	e.Fixed(binary.BigEndian.AppendUint16(b[:0], a.AddrPort.Port()))
}

// readAddress decodes what encodeAddress has encoded.
func readAddress(d *hold.Decoder) (a Addr) {
	form := d.Uint()
	n := 16
	switch form {
	case addressText:
		if a.UnmarshalText(d.Bytes()) != nil {
			d.Fail()
		}
		return a
	case addressTCP4, addressUDP4:
		n = 4
	case addressTCP6, addressUDP6:
	default:
		d.Fail()
		return a
	}
	b := d.Fixed(n + 2)
	if b == nil {
		return a
	}
	ip, _ := netip.AddrFromSlice(b[:n])
	a.AddrPort = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[n:]))
	a.Network = TCP
	if form >= addressUDP4 {
		a.Network = UDP
	}
	return a
}

// readUpstream decodes what encodeUpstream has encoded.
func (k *keeping) readUpstream(d *hold.Decoder) (a Addr) {
	n := d.Uint()
	if n == 0 {
		return readAddress(d)
	}
	s, ok := "", false
	if n-1 <= math.MaxUint32 {
		s, ok = k.Text(uint32(n - 1))
	}
	if !ok || a.UnmarshalText([]byte(s)) != nil {
		d.Fail()
	}
	return a
}

// all returns the timeouts in the order in which they are encoded. Earlier versions know those before the last.
func (t *Timeouts) all() [7]*time.Duration {
	return [...]*time.Duration{&t.Connect, &t.Idle, &t.HalfClosed, &t.FirstByte, &t.Life, &t.Queue, &t.Handshake}
}

// notLost is in place of the reason why a flow is lost, of one that goes on.
const notLost hold.Loss = math.MaxUint8

// restorer is what a loop needs to restore flows.
type restorer struct {
	cfg      *RestoreConfig
	listener func(addr string) *Listener // nil: there is none
	result   *hold.Restored
}

// remembered is what readRecord has found besides the fields of a Flow.
type remembered struct {
	name    string       // of the pair
	peer    Addr         // of the client's socket
	decoder hold.Decoder // for the hooks
	own     *Timeouts    // nil: those of the listener
	rate    int64        // see flowOwner
	preface preface
	inner   uint8         // the bits of Flow.one
	tls     [2]*stats.TLS // of inner sides, and of those with TLS in the kernel
	flowName
}

// readRecord reads what writeRecord has written into f, whose owner, slot and generation are set.
func (t *tenant) readRecord(f *Flow, r ledger.Record) (m remembered, err error) {
	k := t.keep
	f.start = time.Duration(r.Start() - k.base)
	f.firstByte = time.Duration(r.FirstByte())
	f.active, f.since = t.loop.Now, t.loop.Now
	m.name, _ = k.ledger.String(r.Listener())
	b, ok := k.ledger.Blob(r)
	if !ok {
		return m, hold.ErrEncoding
	}
	m.decoder = *hold.NewDecoder(b)
	d := &m.decoder
	d.Share(k)
	if version := d.Uint(); version < encodingVersion || version > encodingVersionTLS {
		return m, hold.ErrEncoding
	}
	flags := d.Uint()
	f.connect = time.Duration(d.Uint())
	m.peer = readAddress(d)
	if flags&encodedAttempts != 0 {
		f.attempts = uint16(d.Uint())
	}
	if flags&encodedQueued != 0 {
		f.queued = time.Duration(d.Uint())
	}
	if flags&encodedClient != 0 {
		f.client = new(Addr)
		*f.client = readAddress(d)
	}
	if flags&encodedUpstream != 0 {
		f.to = new(Addr)
		*f.to = k.readUpstream(d)
	}
	if flags&encodedTimeouts != 0 {
		m.own = new(Timeouts)
		all := hold.NewDecoder([]byte(d.String()))
		for _, p := range m.own.all() {
			if p == &m.own.Handshake && !all.More() {
				break // 0 is the default
			}
			*p = time.Duration(all.Uint())
		}
		if all.Err() != nil {
			d.Fail()
		}
	}
	if flags&encodedRate != 0 {
		m.rate = int64(d.Uint())
	}
	if flags&encodedPreface != 0 {
		m.preface = preface{b: bytes.Clone(d.Bytes()), each: flags&encodedPrefaceEach != 0}
	}
	if flags&encodedName != 0 {
		m.flowName = flowName{is: true, each: flags&encodedNameEach != 0}
		if flags&encodedNameClient != 0 {
			m.client, m.to = readAddress(d).AddrPort, readAddress(d).AddrPort
		}
		m.reply = preface{b: bytes.Clone(d.Bytes()), each: true}
	}
	if flags&encodedInner != 0 {
		m.inner = uint8(d.Uint()) & encodedOne
		m.tls = [2]*stats.TLS{readTLS(d), readTLS(d)}
	}
	return m, d.Err()
}

// encodeTLS encodes what is known of the TLS of a side, which may be nil.
func encodeTLS(e *hold.Encoder, t *stats.TLS) {
	if t == nil {
		e.Uint(0)
		return
	}
	resumed := uint64(0)
	if t.Resumed {
		resumed = 1
	}
	for _, n := range [...]uint64{1, uint64(t.Version), uint64(t.CipherSuite), resumed, uint64(t.Handshake), uint64(t.Received), uint64(t.Sent)} {
		e.Uint(n)
	}
	e.Bytes([]byte(t.ServerName))
	e.Bytes([]byte(t.Protocol))
}

// readTLS decodes what encodeTLS has encoded.
func readTLS(d *hold.Decoder) *stats.TLS {
	if d.Uint() == 0 {
		return nil
	}
	return &stats.TLS{
		Version: uint16(d.Uint()), CipherSuite: uint16(d.Uint()), Resumed: d.Uint() != 0, Handshake: time.Duration(d.Uint()), Received: int64(d.Uint()), Sent: int64(d.Uint()),
		ServerName: string(d.Bytes()), Protocol: string(d.Bytes()),
	}
}

// Changed has Hooks.Encode called again for a flow that is settled, because what it encodes has
// changed. It is called in a hook.
func (f *Flow) Changed() {
	if !f.kept {
		return
	}
	t := f.owner.base()
	r := t.keep.ledger.Record(f.slot)
	// Without it, the next process would believe what is not true any more. It ends the flow.
	r.SetFlags(r.Flags() | recordStale)
	if t.writeBytes(f, r, f.owner.encoder(f)) == nil {
		r.SetFlags(r.Flags() &^ recordStale)
	}
}
