package testnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Pattern is an endless stream of bytes that depends on its seed alone. A byte
// that was lost, doubled or moved shows at once: the period is prime, so no
// buffer size divides it.
type Pattern struct{ table []byte }

const (
	period = 1<<20 - 3 // the largest prime below 1 MiB
	// MaxChunk is the longest run that Pattern.At gives.
	MaxChunk = 1 << 20
)

// NewPattern makes the stream of seed.
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

// Check returns an error that names the first byte of got that is not the one at
// its place, off being the place of got[0].
func (p *Pattern) Check(off int64, got []byte) error {
	for len(got) > 0 {
		n := min(len(got), MaxChunk)
		want := p.At(off, n)
		if !bytes.Equal(got[:n], want) {
			for i := range n {
				if got[i] != want[i] {
					return fmt.Errorf("byte %d is %#02x, want %#02x", off+int64(i), got[i], want[i])
				}
			}
		}
		got, off = got[n:], off+int64(n)
	}
	return nil
}
