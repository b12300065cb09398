package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/penstock/penstock/internal/sys"
)

// The sizes and limits of version 1.
const (
	Version = 1

	// RecordSize is the size of a record as this version knows it. A ledger may have longer ones.
	RecordSize = 176
	// ScratchSize is the size of the scratch buffer.
	ScratchSize = 64 << 10
	// MaxSlots is the maximum number of records.
	MaxSlots = 1 << 24
	// MaxString is the maximum length of an interned string, and StringsSize limits all of them.
	MaxString   = 255
	StringsSize = 4 << 20
	// MaxBlock is the size of the largest block.
	MaxBlock = 64 << 10

	page       = 4096
	headerSize = page
	turnSize   = page
	minBlock   = 64
	maxStride  = page
	maxArena   = 1 << unitBits * minBlock // what a reference can name
	maxFile    = MaxSlots*maxStride + 2*maxArena
)

// ErrInvalid is the error of [Open] for memory that is no ledger, or a damaged one.
var ErrInvalid = errors.New("not a valid ledger")

// ErrVersion is the error of [Open] for a ledger of another version, or one with a required feature that
// this version does not know.
var ErrVersion = errors.New("ledger of another version")

const (
	magic     = "PENSLGR1"
	byteOrder = 0x0a0b0c0d // in the machine's byte order
)

// part is the place of a part in the file.
type part struct{ offset, size uint64 }

func (p part) of(b []byte) []byte {
	return b[p.offset : p.offset+p.size : p.offset+p.size]
}

// header has the fields of a ledger that never change. In the file they are in this order, each a
// little-endian word.
type header struct {
	version   uint64
	required  uint64 // features without which a reader would misunderstand the rest
	optional  uint64 // features that a reader may ignore
	order     uint64
	loop      uint64
	slots     uint64
	stride    uint64
	made      uint64 // CLOCK_MONOTONIC, ns
	madeWall  uint64 // ns since 1970
	turn      part
	stats     part
	scratch   part
	strings   part
	records   part
	arena     part
	fileBytes uint64
}

// The words of the header that change, as offsets in the file: they are beyond all others.
const (
	topAt     = 2048 // one more than the highest slot that was ever used
	stringsAt = 2056 // bytes of the strings
	statsAt   = 2064 // which half of the stats' part is used
)

// format makes a program that stands for a later version in tests of upgrades. The linker sets it (-X), to
// "longer" for ledgers with longer records and an optional feature, which this version understands, or to
// "required" for ledgers with a feature that only such a program knows.
var format = ""

const (
	longerBy        = 64
	optionalFeature = 1 << 40
	requiredFeature = 1 << 40
)

// known returns the required features that this version knows.
func known() uint64 {
	if format == "required" {
		return requiredFeature
	}
	return 0
}

func layout(loop, slots int, arena int64) header {
	h := header{version: Version, required: known(), loop: uint64(loop), slots: uint64(slots), stride: RecordSize}
	if format == "longer" {
		h.optional, h.stride = optionalFeature, RecordSize+longerBy
	}
	at := uint64(headerSize)
	place := func(size uint64) part {
		p := part{at, (size + page - 1) &^ (page - 1)}
		at += p.size
		return p
	}
	h.turn = place(turnSize)
	h.stats = place(2 * statsHalf)
	h.scratch = place(ScratchSize)
	h.strings = place(StringsSize)
	h.records = place(h.slots * h.stride)
	h.arena = place(uint64(arena))
	h.fileBytes = at
	return h
}

func (h *header) words() []*uint64 {
	return []*uint64{&h.version, &h.required, &h.optional, &h.order, &h.loop, &h.slots, &h.stride, &h.made, &h.madeWall,
		&h.turn.offset, &h.turn.size, &h.stats.offset, &h.stats.size, &h.scratch.offset, &h.scratch.size,
		&h.strings.offset, &h.strings.size, &h.records.offset, &h.records.size, &h.arena.offset, &h.arena.size, &h.fileBytes}
}

func (h *header) write(b []byte) {
	h.order = uint64(binary.NativeEndian.Uint32([]byte{0x0d, 0x0c, 0x0b, 0x0a}))
	for i, w := range h.words() {
		sys.Store64(b[8+8*i:], *w)
	}
	copy(b, magic)
}

// readHeader reads and checks the header of a file of the given size: whatever it says, the parts lie
// within the file, apart from each other.
func readHeader(b []byte, size int64) (h header, err error) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("%w: no magic number", ErrInvalid)
	}
	for i, w := range h.words() {
		*w = sys.Load64(b[8+8*i:])
	}
	switch {
	case h.version != Version:
		return h, fmt.Errorf("%w: %d, not %d", ErrVersion, h.version, Version)
	case h.required&^known() != 0:
		return h, fmt.Errorf("%w: unknown feature %#x", ErrVersion, h.required&^known())
	case h.order != uint64(binary.NativeEndian.Uint32([]byte{0x0d, 0x0c, 0x0b, 0x0a})):
		return h, fmt.Errorf("%w: of another byte order", ErrInvalid)
	case h.fileBytes != uint64(size):
		return h, fmt.Errorf("%w: %d bytes, and %d by its header", ErrInvalid, size, h.fileBytes)
	case h.loop > 255, h.slots == 0, h.slots > MaxSlots, h.stride < RecordSize, h.stride > maxStride, h.stride%8 != 0:
		return h, fmt.Errorf("%w: loop %d, %d records of %d bytes", ErrInvalid, h.loop, h.slots, h.stride)
	case h.stats.size < 2*statsHalf, h.turn.size < turnSize, h.scratch.size < ScratchSize, h.records.size < h.slots*h.stride,
		h.arena.size < MaxBlock, h.arena.size > maxArena, h.arena.size%MaxBlock != 0:
		return h, fmt.Errorf("%w: a part is too small or too large", ErrInvalid)
	}
	end := uint64(headerSize)
	for _, p := range []part{h.turn, h.stats, h.scratch, h.strings, h.records, h.arena} {
		if p.offset < end || p.offset%page != 0 || p.size > uint64(size) || p.offset > uint64(size)-p.size {
			return h, fmt.Errorf("%w: a part of %d bytes at %d", ErrInvalid, p.size, p.offset)
		}
		end = p.offset + p.size
	}
	return h, nil
}
