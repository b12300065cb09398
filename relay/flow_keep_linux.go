package relay

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/ledger"
)

// What both kinds of flows write into their records. Beside the fixed fields, a record has bytes:
// those of the engine, as one value of Encoder.Bytes, and then those of the hooks.

// encodingVersion is that of the engine's part of the bytes.
const encodingVersion = 1

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
)

// writeRecord writes what both kinds of flows have in common. name and encode are those of a pair
// given to Relay.
func (t *tenant) writeRecord(f *Flow, r ledger.Record, name string, encode func(*Encoder)) error {
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
func (t *tenant) writeBytes(f *Flow, r ledger.Record, encode func(*Encoder)) error {
	e := &t.keep.encoder
	e.buf = e.buf[:0]
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
	e.Uint(encodingVersion)
	e.Uint(flags)
	e.Uint(uint64(f.connect))
	e.address(f.owner.remote(f, sideClient))
	if f.attempts != 0 {
		e.Uint(uint64(f.attempts))
	}
	if f.queued != 0 {
		e.Uint(uint64(f.queued))
	}
	if f.client != nil {
		e.address(*f.client)
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
	n := len(e.buf)
	switch {
	case f.listener == nil:
		if encode != nil {
			encode(e)
		}
	case f.cfg.Hooks.Encode != nil:
		f.cfg.Hooks.Encode(f, e)
	}
	if len(e.buf)-n > MaxEncoded || !t.keep.ledger.SetBlob(r, e.buf) {
		return errNotEncoded
	}
	return nil
}

// encodeUpstream encodes what String would, of an address that many flows share.
func (t *tenant) encodeUpstream(f *Flow, e *Encoder) {
	if f.listener != nil {
		if ref, ok := t.keep.Intern(string(t.keep.addrText(*f.to))); ok {
			e.Uint(uint64(ref) + 1)
			return
		}
	}
	e.Uint(0) // each pair has another address
	e.address(*f.to)
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

// address encodes an address that few flows share.
func (e *Encoder) address(a Addr) {
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
	switch form {
	case addressText:
		at := len(e.buf)
		e.Uint(0)
		e.buf, _ = a.AppendText(e.buf)
		// Addresses are shorter than 128 bytes, and their length is one byte.
		if n := len(e.buf) - at - 1; n < 128 {
			e.buf[at] = byte(n)
		} else {
			e.buf = e.buf[:at+1]
		}
		return
	case addressTCP4, addressUDP4:
		b := ip.As4()
		e.buf = append(e.buf, b[:]...)
	default:
		b := ip.As16()
		e.buf = append(e.buf, b[:]...)
	}
	e.buf = binary.BigEndian.AppendUint16(e.buf, a.AddrPort.Port())
}

func (d *Decoder) address() (a Addr) {
	form := d.Uint()
	n := 16
	switch form {
	case addressText:
		if a.UnmarshalText(d.Bytes()) != nil {
			d.fail()
		}
		return a
	case addressTCP4, addressUDP4:
		n = 4
	case addressTCP6, addressUDP6:
	default:
		d.fail()
		return a
	}
	if len(d.buf) < n+2 {
		d.fail()
		return a
	}
	ip, _ := netip.AddrFromSlice(d.buf[:n])
	a.AddrPort = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(d.buf[n:]))
	d.buf = d.buf[n+2:]
	a.Network = TCP
	if form >= addressUDP4 {
		a.Network = UDP
	}
	return a
}

// upstream decodes what encodeUpstream has encoded.
func (d *Decoder) upstream() (a Addr) {
	n := d.Uint()
	if n == 0 {
		return d.address()
	}
	if s, ok := d.text(n); !ok || a.UnmarshalText([]byte(s)) != nil {
		d.fail()
	}
	return a
}

func (t *Timeouts) all() [6]*time.Duration {
	return [6]*time.Duration{&t.Connect, &t.Idle, &t.HalfClosed, &t.FirstByte, &t.Life, &t.Queue}
}

// restorer is what a loop needs to restore flows.
type restorer struct {
	cfg      *RestoreConfig
	listener func(addr string) *Listener // nil: there is none
	result   *Restored
}

// remembered is what readRecord has found besides the fields of a Flow.
type remembered struct {
	name    string    // of the pair
	peer    Addr      // of the client's socket
	decoder Decoder   // for the hooks
	own     *Timeouts // nil: those of the listener
	rate    int64     // see flowOwner
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
		return m, ErrEncoding
	}
	m.decoder = Decoder{buf: b, strings: k}
	d := &m.decoder
	if d.Uint() != encodingVersion {
		return m, ErrEncoding
	}
	flags := d.Uint()
	f.connect = time.Duration(d.Uint())
	m.peer = d.address()
	if flags&encodedAttempts != 0 {
		f.attempts = uint16(d.Uint())
	}
	if flags&encodedQueued != 0 {
		f.queued = time.Duration(d.Uint())
	}
	if flags&encodedClient != 0 {
		f.client = new(Addr)
		*f.client = d.address()
	}
	if flags&encodedUpstream != 0 {
		f.to = new(Addr)
		*f.to = d.upstream()
	}
	if flags&encodedTimeouts != 0 {
		m.own = new(Timeouts)
		all := NewDecoder([]byte(d.String()))
		for _, p := range m.own.all() {
			*p = time.Duration(all.Uint())
		}
		if all.Err() != nil {
			d.fail()
		}
	}
	if flags&encodedRate != 0 {
		m.rate = int64(d.Uint())
	}
	return m, d.err
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
