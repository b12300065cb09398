package hold

import (
	"encoding/binary"
	"errors"
)

// MaxEncoded is the maximum number of bytes that relay.Hooks.Encode may encode for one flow.
// A flow with more does not outlive its process.
const MaxEncoded = 4096

// An encoded value is a number in the format of package encoding/binary's Uvarint. A
// string is a number: n+1 if the engine knows the string by number n, or else 0, the
// string's length and its bytes.

// Encoder encodes what a flow's hooks know of it, for the engine of another process; see
// relay.Hooks. What was encoded is decoded in the same order by a [Decoder], perhaps of
// another version of the program, which is why a version usually comes first. The zero
// Encoder is ready to use.
type Encoder struct {
	buf     []byte
	strings Strings // nil: none
}

// Strings keeps strings that many flows share.
type Strings interface {
	// Intern returns the number of s; false means that there is no room for it.
	Intern(s string) (number uint32, ok bool)
	// Text returns the string with that number.
	Text(number uint32) (s string, ok bool)
}

// Share has strings encoded as numbers that s gives. An engine does so for its hooks.
func (e *Encoder) Share(s Strings) { e.strings = s }

// Reset forgets what was encoded.
func (e *Encoder) Reset() { e.buf = e.buf[:0] }

// Uint encodes a number.
func (e *Encoder) Uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }

// String encodes a string that many flows share, such as a name. In an engine it takes a
// few bytes, however long it is.
func (e *Encoder) String(s string) {
	if e.strings != nil {
		if n, ok := e.strings.Intern(s); ok {
			e.Uint(uint64(n) + 1)
			return
		}
	}
	e.Uint(0)
	e.Uint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

// Bytes encodes bytes, which it copies.
func (e *Encoder) Bytes(b []byte) {
	e.Uint(uint64(len(b)))
	e.buf = append(e.buf, b...)
}

// Fixed encodes bytes without their number, which whoever decodes them knows.
func (e *Encoder) Fixed(b []byte) { e.buf = append(e.buf, b...) }

// Encoded returns what was encoded. It is valid until the next call of another method.
func (e *Encoder) Encoded() []byte { return e.buf }

// ErrEncoding is returned by [Decoder.Err] if the bytes do not contain what was asked
// for.
var ErrEncoding = errors.New("relay: invalid or incomplete encoding")

// Decoder decodes what an [Encoder] has encoded, in the same order. After the first
// failure all methods return zero values; Err tells.
type Decoder struct {
	buf     []byte
	strings Strings
	err     error
}

// NewDecoder returns a Decoder of bytes that Encoder.Encoded has returned. Engines pass
// one to Hooks.Decode.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Share has strings decoded that were encoded as numbers of s.
func (d *Decoder) Share(s Strings) { d.strings = s }

// Uint decodes a number.
func (d *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(d.buf)
	if d.err != nil || n <= 0 {
		d.Fail()
		return 0
	}
	d.buf = d.buf[n:]
	return v
}

// String decodes a string.
func (d *Decoder) String() string {
	n := d.Uint()
	switch {
	case d.err != nil:
		return ""
	case n == 0:
		return string(d.Bytes())
	}
	s, ok := d.shared(n - 1)
	if !ok {
		d.Fail()
	}
	return s
}

// shared returns the string with a number of Strings.
func (d *Decoder) shared(n uint64) (string, bool) {
	if d.strings == nil || n > 1<<32-1 {
		return "", false
	}
	return d.strings.Text(uint32(n))
}

// Bytes decodes bytes. They are valid until the hook returns and must not be changed.
func (d *Decoder) Bytes() []byte {
	n := d.Uint()
	if d.err != nil || n > uint64(len(d.buf)) {
		d.Fail()
		return nil
	}
	b := d.buf[:n:n]
	d.buf = d.buf[n:]
	return b
}

// Fixed decodes n bytes that Encoder.Fixed has encoded. They are valid as those of Bytes.
func (d *Decoder) Fixed(n int) []byte {
	if d.err != nil || n > len(d.buf) {
		d.Fail()
		return nil
	}
	b := d.buf[:n:n]
	d.buf = d.buf[n:]
	return b
}

// More reports whether there is more to decode. It is how a later version finds out that
// an earlier one has encoded less.
func (d *Decoder) More() bool { return d.err == nil && len(d.buf) > 0 }

// Err returns [ErrEncoding] if a method has failed, and nil otherwise.
func (d *Decoder) Err() error { return d.err }

// Fail has the decoder fail, as if something had been incomplete: what was decoded makes no sense.
func (d *Decoder) Fail() {
	if d.err == nil {
		d.err = ErrEncoding
	}
	d.buf = nil
}
