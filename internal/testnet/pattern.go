package testnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Pattern is an endless stream of bytes that depends only on its seed. A lost, duplicated or moved
// byte is noticed at once: the period is prime, so no buffer size divides it.
type Pattern struct{ table []byte }

const (
	period = 1<<20 - 3 // the largest prime below 1 MiB
	// MaxChunk is the maximum length for Pattern.At.
	MaxChunk = 1 << 20
)

// NewPattern returns the stream of seed.
func NewPattern(seed uint64) *Pattern {
	r := rand.New(rand.NewPCG(seed, seed))
	t := make([]byte, period+MaxChunk)
	for i := 0; i < period; i += 8 {
		binary.LittleEndian.PutUint64(t[i:], r.Uint64())
	}
	copy(t[period:], t)
	copy(t[2*period:], t)
	return &Pattern{t}
}

// At returns the n bytes from offset off. They must not be changed. It panics if
// n is above [MaxChunk].
func (p *Pattern) At(off int64, n int) []byte {
	i := int(off % period)
	return p.table[i : i+n : i+n]
}

// Check compares got with the stream from offset off on, and returns an error that names the first
// wrong byte. It also says how long the bytes are wrong, and from where in the stream they come: lost
// and repeated bytes are told from overwritten ones, also by a failure that nobody can repeat.
func (p *Pattern) Check(off int64, got []byte) error {
	for len(got) > 0 {
		n := min(len(got), MaxChunk)
		want := p.At(off, n)
		if !bytes.Equal(got[:n], want) {
			for i := range n {
				if got[i] != want[i] {
					return fmt.Errorf("byte %d is %#02x, want %#02x; %s", off+int64(i), got[i], want[i], p.wrong(off+int64(i), got[i:n], want[i:]))
				}
			}
		}
		got, off = got[n:], off+int64(n)
	}
	return nil
}

// wrong describes a stretch of wrong bytes. The first byte of got is wrong, and at off.
func (p *Pattern) wrong(off int64, got, want []byte) string {
	const same = 8 // so many right bytes in a row are no accident
	length, right := len(got), 0
	for i := range got {
		if right++; got[i] != want[i] {
			right = 0
		}
		if right == same {
			length = i + 1 - same
			break
		}
	}
	s := fmt.Sprintf("wrong for %d", length)
	if length == len(got) {
		s = fmt.Sprintf("wrong up to the last of %d bytes", length)
	}
	if length < same {
		return fmt.Sprintf("%s: %x instead of %x", s, got[:length], want[:length])
	}
	if at := bytes.Index(p.table, got[:same]); at >= 0 {
		return fmt.Sprintf("%s, which belong %+d from there (modulo %d)", s, int64(at)-off%period, period)
	}
	return s + ", which are not of this stream"
}
