package ledger

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Ledger is the memory of one loop. It is used by one goroutine at a time.
type Ledger struct {
	kernel  sys.SharedMemory
	fd      int
	mem     []byte
	header  header
	records []byte
	stride  int
	top     uint32 // as in the header
	strings table
	arena   Arena
}

// Config describes a new ledger.
type Config struct {
	Loop  int // the loop's index, below 256
	Slots int // the maximum number of records; 0: MaxSlots
	// Arena is the size of all blocks in bytes; 0: 16 GiB, which is the maximum. Neither it nor Slots
	// cost memory before they are used.
	Arena int64
	// Made is when the ledger is made, on CLOCK_MONOTONIC; 0: now.
	Made int64
	// Kernel has the memory; nil: Linux.
	Kernel sys.SharedMemory
}

// Create makes an empty ledger. On a 32-bit system its error is [errors.ErrUnsupported].
func Create(cfg Config) (*Ledger, error) {
	if bits.UintSize < 64 {
		return nil, fmt.Errorf("flows can outlive the process on 64-bit systems only: %w", errors.ErrUnsupported)
	}
	if cfg.Slots == 0 {
		cfg.Slots = MaxSlots
	}
	if cfg.Arena == 0 {
		cfg.Arena = maxArena
	}
	if cfg.Kernel == nil {
		cfg.Kernel = sys.Linux{}
	}
	if cfg.Loop < 0 || cfg.Loop > 255 || cfg.Slots < 0 || cfg.Slots > MaxSlots || cfg.Arena < 0 || cfg.Arena > maxArena {
		return nil, fmt.Errorf("ledger: %w", sys.EINVAL)
	}
	h := layout(cfg.Loop, cfg.Slots, (cfg.Arena+MaxBlock-1)&^(MaxBlock-1))
	if cfg.Made == 0 {
		cfg.Made = sys.MonotonicNow()
	}
	h.made, h.madeWall = uint64(cfg.Made), uint64(time.Now().UnixNano())
	fd, e := cfg.Kernel.Memfd("penstock-ledger", int64(h.fileBytes))
	if e != 0 {
		return nil, fmt.Errorf("memfd_create: %w", e)
	}
	mem, e := cfg.Kernel.Map(fd, int64(h.fileBytes))
	if e != 0 {
		cfg.Kernel.Close(fd)
		return nil, fmt.Errorf("mmap: %w", e)
	}
	h.write(mem)
	return newLedger(cfg.Kernel, fd, mem, h), nil
}

// Open opens a ledger of a kernel that another process has written, which must be dead: all of it is checked, and
// whatever the bytes are, no method panics. On success the ledger owns fd.
func Open(kernel sys.SharedMemory, fd int) (*Ledger, error) {
	if bits.UintSize < 64 {
		return nil, fmt.Errorf("flows can outlive the process on 64-bit systems only: %w", errors.ErrUnsupported)
	}
	mem, h, err := mapFile(kernel, fd)
	if err != nil {
		return nil, err
	}
	l := newLedger(kernel, fd, mem, h)
	l.top = uint32(min(l.word(topAt), h.slots))
	if err := l.strings.load(l.word(stringsAt)); err != nil {
		kernel.Unmap(mem)
		return nil, err
	}
	return l, nil
}

// Check reports whether this version can read a ledger, which the process that writes it may still use. It
// returns what [Open] would return. The descriptor stays the caller's.
func Check(fd int) error {
	kernel := sys.Linux{}
	mem, _, err := mapFile(kernel, fd)
	if err == nil {
		kernel.Unmap(mem)
	}
	return err
}

// mapFile maps a ledger's file and reads its header.
func mapFile(kernel sys.SharedMemory, fd int) ([]byte, header, error) {
	size, e := kernel.SealedSize(fd)
	if e != 0 {
		return nil, header{}, fmt.Errorf("%w: %w", ErrInvalid, e)
	}
	if size < headerSize || size > maxFile {
		return nil, header{}, fmt.Errorf("%w: %d bytes", ErrInvalid, size)
	}
	mem, e := kernel.Map(fd, size)
	if e != 0 {
		return nil, header{}, fmt.Errorf("mmap: %w", e)
	}
	h, err := readHeader(mem, size)
	if err != nil {
		kernel.Unmap(mem)
	}
	return mem, h, err
}

func newLedger(kernel sys.SharedMemory, fd int, mem []byte, h header) *Ledger {
	l := &Ledger{kernel: kernel, fd: fd, mem: mem, header: h, records: h.records.of(mem), stride: int(h.stride)}
	l.strings.init(h.strings.of(mem), mem[stringsAt:stringsAt+8])
	l.arena.init(kernel, fd, int64(h.arena.offset), h.arena.of(mem))
	return l
}

// Close gives the memory and the descriptor back. Nothing that came from the ledger may be used after it.
func (l *Ledger) Close() {
	l.kernel.Unmap(l.mem)
	l.kernel.Close(l.fd)
	l.mem = nil
}

// FD returns the descriptor, which stays the ledger's.
func (l *Ledger) FD() int { return l.fd }

// Loop returns the index of the loop that the ledger was made for.
func (l *Ledger) Loop() int { return int(l.header.loop) }

// Made returns when the ledger was created, on CLOCK_MONOTONIC.
func (l *Ledger) Made() int64 { return int64(l.header.made) }

// Top returns a number that is above every slot whose record is valid.
func (l *Ledger) Top() uint32 { return l.top }

// Slots returns the number of records.
func (l *Ledger) Slots() int { return int(l.header.slots) }

// Scratch returns the scratch buffer.
func (l *Ledger) Scratch() []byte { return l.header.scratch.of(l.mem)[:ScratchSize:ScratchSize] }

// Turn returns the turn note.
func (l *Ledger) Turn() Turn { return Turn{(*[turnSize]byte)(l.header.turn.of(l.mem))} }

// Arena returns the blocks. After Open all are free, except those that [Arena.Reserve] has been told of.
func (l *Ledger) Arena() *Arena { return &l.arena }

// Record returns the record of a slot, which must be less than Slots. It is valid until Close.
func (l *Ledger) Record(slot uint32) Record {
	return Record{(*[RecordSize]byte)(l.records[int(slot)*l.stride:])}
}

// Begin clears the record of a slot and returns it. It counts only after Publish.
func (l *Ledger) Begin(slot uint32) Record {
	at := int(slot) * l.stride
	b := l.records[at : at+l.stride]
	r := Record{(*[RecordSize]byte)(b)}
	r.SetGeneration(0)
	clear(b)
	return r
}

// Publish makes the record of a slot valid, with an odd generation. All else must have been set before.
func (l *Ledger) Publish(slot, generation uint32) {
	if slot >= l.top {
		l.top = slot + 1
		l.setWord(topAt, uint64(l.top))
	}
	l.Record(slot).SetGeneration(generation)
}

// Free makes the record of a slot invalid.
func (l *Ledger) Free(slot uint32) { l.Record(slot).SetGeneration(0) }

// All yields the slots of all valid records, in ascending order.
func (l *Ledger) All() iter.Seq2[uint32, Record] {
	return func(yield func(uint32, Record) bool) {
		for slot := range l.top {
			if r := l.Record(slot); r.Generation()&1 != 0 && !yield(slot, r) {
				return
			}
		}
	}
}

func (l *Ledger) word(at int) uint64       { return sys.Load64(l.mem[at:]) }
func (l *Ledger) setWord(at int, v uint64) { sys.Store64(l.mem[at:], v) }

// Reserve marks the blocks that a record names as used, so that [Arena.Get] does not give them away. The
// records of a ledger that was opened must all be reserved before the first Get. It reports false, and
// reserves nothing, if a reference is damaged, or if another record has the block.
func (l *Ledger) Reserve(r Record) bool {
	refs := [3]uint32{}
	refs[0], _ = r.blob()
	if r.Kind() == KindStream {
		refs[1], _ = r.Half(0).Block()
		refs[2], _ = r.Half(1).Block()
	}
	for i, ref := range refs {
		if ref != 0 && !l.arena.Reserve(ref) {
			for _, ref := range refs[:i] {
				if ref != 0 {
					l.arena.freeRef(ref)
				}
			}
			return false
		}
	}
	return true
}

// Blob returns the bytes that belong to a record, in the record itself or in a block. It reports false if
// the record is damaged.
func (l *Ledger) Blob(r Record) ([]byte, bool) {
	ref, n := r.blob()
	if ref == 0 {
		b := r.inline()
		if n > len(b) {
			return nil, false
		}
		return b[:n:n], true
	}
	return l.arena.Bytes(ref, n)
}

// SetBlob stores a copy of p, of at most [MaxBlob] bytes, as the bytes that belong to a record of which the
// kind is set, and frees the block of those before. It reports false, and changes nothing, if there is no
// room. A reader never sees half of it: if the bytes lie in the record, and others did before, they go to
// a block.
func (l *Ledger) SetBlob(r Record, p []byte) bool {
	if len(p) > MaxBlob {
		return false
	}
	oldRef, oldLen := r.blob()
	if inline := r.inline(); len(p) == 0 || len(p) <= len(inline) && (oldRef != 0 || oldLen == 0) {
		copy(inline, p)
		r.setBlob(0, len(p))
	} else {
		b := l.arena.Get(len(p))
		ref, ok := l.arena.Ref(b)
		if !ok {
			return false
		}
		copy(b, p)
		r.setBlob(ref, len(p))
	}
	if oldRef != 0 {
		l.arena.freeRef(oldRef)
	}
	return true
}
