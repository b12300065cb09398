//go:build linux

// Package pattern makes bytes that say whose they are: every byte of a flow is a function of the flow, the direction
// and the offset. So a byte that is missing, wrong or that comes twice is noticed, and whose it is.
package pattern

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Direction is one of the two of a flow.
type Direction int

const (
	Up   Direction = iota // client to upstream
	Down                  // upstream to client
)

func (d Direction) String() string { return [...]string{"up", "down"}[d] }

// The bytes of a flow are 64-bit words, each a reversible mix of the flow's number, the direction and
// the word's index. So any 23 bytes in a row name the flow, direction and offset that they belong to,
// wherever they arrive.
const (
	indexBits = 39
	flowBits  = 24
	MaxFlow   = 1 << flowBits // above the number of any flow
)

func word(flow uint64, d Direction, index uint64) uint64 {
	return mix(flow<<(indexBits+1) | uint64(d)<<indexBits | index)
}

// mix is the finalizer of SplitMix64, which is a bijection, of x and a constant.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unmix undoes mix.
func unmix(x uint64) uint64 {
	x = (x ^ x>>31 ^ x>>62) * 0x319642b2d24d8ec3
	x = (x ^ x>>27 ^ x>>54) * 0x96de1b173f119089
	return (x ^ x>>30 ^ x>>60) - 0x9e3779b97f4a7c15
}

// Fill writes what a direction of a flow has from offset on.
func Fill(p []byte, flow uint64, d Direction, offset int64) {
	index := uint64(offset) / 8
	if skip := int(offset % 8); skip > 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], word(flow, d, index))
		p = p[copy(p, b[skip:]):]
		index++
	}
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, word(flow, d, index))
		index++
	}
	if len(p) > 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], word(flow, d, index))
		copy(p, b[:])
	}
}

// Owner returns the flow, direction and offset of the first byte of p, if two whole words of p say so.
func Owner(p []byte) (flow uint64, d Direction, offset int64, ok bool) {
	for shift := 0; shift < 8 && len(p) >= shift+16; shift++ {
		x, y := unmix(binary.LittleEndian.Uint64(p[shift:])), unmix(binary.LittleEndian.Uint64(p[shift+8:]))
		flow, index := x>>(indexBits+1), x&(1<<indexBits-1)
		offset := int64(index)*8 - int64(shift)
		if y != x+1 || flow == 0 || offset < 0 {
			continue
		}
		return flow, Direction(x >> indexBits & 1), offset, true
	}
	return 0, 0, 0, false
}

// Mismatch describes the first wrong byte of p, which should be what a direction of a flow has from
// offset on. The number of bytes that are missing or came twice is 0 if p does not say.
type Mismatch struct {
	Offset    int64 // of the first wrong byte
	Lost      int64 // bytes are missing in front of it
	Duplicate int64 // bytes came again
	Text      string
}

// Compare returns how many bytes of p are right, and what is wrong with the next one; nil if all are
// right. It uses scratch, which is at least as long as p.
func Compare(p, scratch []byte, flow uint64, d Direction, offset int64) (int, *Mismatch) {
	want := scratch[:len(p)]
	Fill(want, flow, d, offset)
	if bytes.Equal(p, want) {
		return len(p), nil
	}
	i := 0
	for p[i] == want[i] {
		i++
	}
	m := &Mismatch{Offset: offset + int64(i)}
	gotFlow, gotDirection, at, ok := Owner(p[i:])
	switch {
	case !ok:
		m.Text = fmt.Sprintf("nobody's bytes: % x", p[i:min(i+16, len(p))])
	case gotFlow == flow && gotDirection == d && at > m.Offset:
		m.Lost = at - m.Offset
		m.Text = fmt.Sprintf("%d bytes are missing", m.Lost)
	case gotFlow == flow && gotDirection == d:
		m.Duplicate = m.Offset - at
		m.Text = fmt.Sprintf("the %d bytes before came again", m.Duplicate)
	default:
		m.Text = fmt.Sprintf("bytes of flow %d, %v, offset %d", gotFlow, gotDirection, at)
	}
	return i, m
}
