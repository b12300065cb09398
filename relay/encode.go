package relay

import (
	"encoding/binary"
	"errors"
)

// MaxEncoded is the maximum number of bytes that Hooks.Encode may encode for one flow.
// A flow with more does not outlive its process.
const MaxEncoded = 4096

// An encoded value is a number in the format of package encoding/binary's Uvarint. A
// string is a number: n+1 if the engine knows the string by number n, or else 0, the
// string's length and its bytes.

// Encoder encodes what a flow's hooks know of it, for the engine of another process; see
// [Hooks]. What was encoded is decoded in the same order by a [Decoder], perhaps of
// another version of the program, which is why a version usually comes first. The zero
// Encoder is ready to use.
type Encoder struct {
	buf     []byte
	strings interner // nil: none
}

// interner keeps strings that many flows share.
type interner interface {
	// Intern returns the number of s; false means that there is no room for it.
	Intern(s string) (number uint32, ok bool)
	// Text returns the string with that number.
	Text(number uint32) (s string, ok bool)
}

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

// Encoded returns what was encoded. It is valid until the next call of another method.
func (e *Encoder) Encoded() []byte { return e.buf }

// ErrEncoding is returned by [Decoder.Err] if the bytes do not contain what was asked
// for.
var ErrEncoding = errors.New("relay: invalid or incomplete encoding")

// Decoder decodes what an [Encoder] has encoded, in the same order. After the first
// failure all methods return zero values; Err tells.
type Decoder struct {
	buf     []byte
	strings interner
	err     error
}

// NewDecoder returns a Decoder of bytes that Encoder.Encoded has returned. Engines pass
// one to Hooks.Decode.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Uint decodes a number.
func (d *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(d.buf)
	if d.err != nil || n <= 0 {
		d.fail()
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
	s, ok := d.text(n)
	if !ok {
		d.fail()
	}
	return s
}

// text returns the string that Encoder.String has encoded as the number n.
func (d *Decoder) text(n uint64) (string, bool) {
	if d.err != nil || d.strings == nil || n == 0 || n-1 > 1<<32-1 {
		return "", false
	}
	return d.strings.Text(uint32(n - 1))
}

// Bytes decodes bytes. They are valid until the hook returns and must not be changed.
func (d *Decoder) Bytes() []byte {
	n := d.Uint()
	if d.err != nil || n > uint64(len(d.buf)) {
		d.fail()
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

func (d *Decoder) fail() {
	if d.err == nil {
		d.err = ErrEncoding
	}
	d.buf = nil
}
