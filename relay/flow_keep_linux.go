package relay

import (
	"errors"
	"time"

	"github.com/penstock/penstock/internal/ledger"
)

// What both kinds of flows write into their records. Beside the fixed fields, a record has bytes:
// those of the engine, as one value of Encoder.Bytes, and then those of the hooks.

// encodingVersion is that of the engine's part of the bytes.
const encodingVersion = 1

// errEncodedTooMuch is for those who look for the reason why a flow is not kept.
var errNotEncoded = errors.New("relay: what the hooks encode does not fit")

// writeRecord writes what both kinds of flows have in common. name and encode are those of a pair
// given to Relay.
func (t *tenant) writeRecord(f *Flow, r ledger.Record, name string, encode func(*Encoder)) error {
	k := t.keep
	r.SetStart(k.base + int64(f.start))
	r.SetConnect(int64(f.connect))
	r.SetFirstByte(int64(f.firstByte))
	r.SetQueued(int64(f.queued))
	r.SetCause(uint8(f.cause))
	listener := name
	if f.listener != nil {
		listener = f.listener.addr.String()
	}
	ref, ok := k.ledger.Intern(listener)
	if !ok {
		return errNotEncoded
	}
	r.SetListener(ref)
	return t.writeBytes(f, r, encode)
}

// writeBytes writes what has no fixed size.
func (t *tenant) writeBytes(f *Flow, r ledger.Record, encode func(*Encoder)) error {
	e := &t.keep.encoder
	e.buf = e.buf[:0]
	e.Uint(encodingVersion)
	e.Uint(uint64(f.attempts))
	e.address(addrOrZero(f.client))
	e.address(f.owner.remote(f, sideClient))
	if f.listener == nil {
		e.Uint(0) // as String does without a table: each pair has another address
		e.address(addrOrZero(f.to))
	} else {
		e.String(addrOrZero(f.to).String())
	}
	var own *Timeouts
	if f.cfg == nil || *f.timeouts != f.cfg.Timeouts {
		own = f.timeouts
	}
	e.timeouts(own)
	e.Uint(uint64(f.owner.rate(f)))
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

func addrOrZero(a *Addr) Addr {
	if a == nil {
		return Addr{}
	}
	return *a
}

// address encodes an address that few flows share.
func (e *Encoder) address(a Addr) {
	at := len(e.buf)
	e.Uint(0)
	e.buf, _ = a.AppendText(e.buf)
	// Addresses are shorter than 128 bytes, and their length is one byte.
	if n := len(e.buf) - at - 1; n < 128 {
		e.buf[at] = byte(n)
	} else {
		e.buf = e.buf[:at+1]
	}
}

func (d *Decoder) address() (a Addr) {
	if a.UnmarshalText(d.Bytes()) != nil {
		d.fail()
	}
	return a
}

// timeouts encodes timeouts; nil: the listener's.
func (e *Encoder) timeouts(t *Timeouts) {
	if t == nil {
		e.Uint(0)
		return
	}
	e.Uint(1)
	for _, d := range t.all() {
		e.Uint(uint64(*d))
	}
}

func (d *Decoder) timeouts() *Timeouts {
	if d.Uint() == 0 {
		return nil
	}
	t := new(Timeouts)
	for _, p := range t.all() {
		*p = time.Duration(d.Uint())
	}
	return t
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
	f.connect = time.Duration(r.Connect())
	f.firstByte = time.Duration(r.FirstByte())
	f.queued = time.Duration(r.Queued())
	f.active, f.since = t.loop.now, t.loop.now
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
	f.attempts = uint16(d.Uint())
	if a := d.address(); a != (Addr{}) {
		f.client = &a
	}
	m.peer = d.address()
	if s := d.String(); s != "" {
		f.to = new(Addr)
		if err := f.to.UnmarshalText([]byte(s)); err != nil {
			return m, err
		}
	}
	m.own = d.timeouts()
	m.rate = int64(d.Uint())
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
	if t.writeBytes(f, r, nil) != nil {
		// The next process would believe what is not true any more. It has the flow end.
		r.SetFlags(r.Flags() | recordDamaged)
	}
}
