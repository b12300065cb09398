package ledger

import (
	"math/bits"

	"github.com/penstock/penstock/internal/sys"
)

// Arena lends blocks of 64 bytes to 64 KiB, by powers of two. It has the methods of pool.Buffers, but the
// blocks outlive the process. It is used by one goroutine at a time.
//
// It consists of chunks of 64 KiB. A chunk is free, or divided into blocks of one size:
//
//	             Get                     Put of the last block
//	untouched ─────────▶ divided ──────────────────────────────▶ free
//	    ▲                   ▲                    Get               │
//	    │                   └──────────────────────────────────────┤
//	    └──────────────────────────────────────────────────────────┘
//	                        Trim: the kernel gets the memory back
//
// What is used is only known to the process that relays: the next one learns it from the records, by
// [Ledger.Reserve].
type Arena struct {
	kernel sys.SharedMemory
	fd     int
	offset int64 // of mem in the file
	mem    []byte
	chunks []chunk // those that were ever used; what is behind them is untouched
	// Lists of chunks, by index and 1; 0 ends a list.
	partial   [classes]uint32 // divided, with blocks left
	free      uint32
	untouched uint32
	numFree   int // on the list free
	unused    int // the smallest numFree since the last Trim
	used      int64
}

type chunk struct {
	class      int8 // -1: not divided
	used       uint16
	prev, next uint32
	taken      [MaxBlock / minBlock / 64]uint64
}

const (
	classes  = 11 // 64 << 0 to 64 << 10
	unitBits = 28 // a reference has the block's place in units of 64 bytes, and above it its class and 1
	// maxFree limits how many free chunks wait for a Trim: 4 MiB. To free a chunk and to touch its pages
	// again takes about as long as to fill it.
	maxFree = 64
)

func (a *Arena) init(kernel sys.SharedMemory, fd int, offset int64, mem []byte) {
	a.kernel, a.fd, a.offset, a.mem = kernel, fd, offset, mem
}

func classOf(n int) int { return bits.Len(uint(max(n, 1)-1) / minBlock) }

// Get returns a block of length n with arbitrary contents; its capacity is that of the whole block. If n
// is above [MaxBlock], or if everything is lent, it is ordinary memory, to which Ref gives no reference.
func (a *Arena) Get(n int) []byte {
	if n > MaxBlock {
		return make([]byte, n)
	}
	class := classOf(n)
	at := a.partial[class]
	if at == 0 {
		if at = a.divide(class); at == 0 {
			return make([]byte, n)
		}
	}
	c := &a.chunks[at-1]
	block := 0
	for i, w := range c.taken {
		if w != ^uint64(0) {
			block = 64*i + bits.TrailingZeros64(^w)
			break
		}
	}
	size := minBlock << class
	a.take(at, block)
	from := int(at-1)*MaxBlock + block*size
	return a.mem[from : from+n : from+size]
}

// Put takes back what Get has returned, and nothing else that belongs to the arena.
func (a *Arena) Put(b []byte) {
	if n, ok := sys.Offset(a.mem, b); ok && b != nil {
		a.put(n)
	}
}

// Ref returns the reference of a block; it reports false for memory that is not the arena's.
func (a *Arena) Ref(b []byte) (uint32, bool) {
	n, ok := sys.Offset(a.mem, b)
	if !ok || b == nil || n/MaxBlock >= len(a.chunks) || a.chunks[n/MaxBlock].class < 0 {
		return 0, false
	}
	class := int(a.chunks[n/MaxBlock].class)
	return uint32(class+1)<<unitBits | uint32(n/minBlock), true
}

// Bytes returns the first n bytes of a block, with the capacity of the whole. It reports false if there
// can be no such block, but not whether it is lent.
func (a *Arena) Bytes(ref uint32, n int) ([]byte, bool) {
	class, from, ok := a.find(ref)
	size := minBlock << class
	if !ok || n < 0 || n > size {
		return nil, false
	}
	return a.mem[from : from+n : from+size], true
}

// Reserve lends the block that a record of a dead process names. It reports false if there is no such
// block, or if it is lent.
func (a *Arena) Reserve(ref uint32) bool {
	class, from, ok := a.find(ref)
	if !ok {
		return false
	}
	index := from / MaxBlock
	for len(a.chunks) <= index {
		a.addFree() // the dead process may have used it
	}
	at, block := uint32(index+1), from%MaxBlock/(minBlock<<class)
	c := &a.chunks[index]
	switch {
	case c.class < 0:
		a.unlink(&a.free, at)
		a.numFree--
		a.unused = min(a.unused, a.numFree)
		a.setClass(at, class)
	case int(c.class) != class || c.taken[block/64]&(1<<(block%64)) != 0:
		return false
	}
	a.take(at, block)
	return true
}

// Used returns the size of the blocks that are lent.
func (a *Arena) Used() int64 { return a.used }

// Trim gives the memory of as many free chunks back to the kernel as were not needed since the last Trim.
// It is called from time to time.
func (a *Arena) Trim() {
	for n := a.unused; n > 0; n-- {
		at := a.free
		a.unlink(&a.free, at)
		a.numFree--
		a.release(at)
	}
	a.unused = a.numFree
}

// Sweep gives all memory back to the kernel that is not lent. It is called once after the records of a
// dead process are reserved.
func (a *Arena) Sweep() {
	a.unused = a.numFree
	a.Trim()
	if from := len(a.chunks) * MaxBlock; from < len(a.mem) {
		a.kernel.PunchHole(a.fd, a.offset+int64(from), int64(len(a.mem)-from))
	}
}

// find returns a block's class and where it begins.
func (a *Arena) find(ref uint32) (class, from int, ok bool) {
	class, from = int(ref>>unitBits)-1, int(ref&(1<<unitBits-1))*minBlock
	if class < 0 || class >= classes {
		return 0, 0, false
	}
	return class, from, from < len(a.mem) && from%(minBlock<<class) == 0
}

// divide finds a chunk for blocks of a class; 0 means that there is none.
func (a *Arena) divide(class int) uint32 {
	at := a.free
	switch {
	case at != 0:
		a.unlink(&a.free, at)
		a.numFree--
		a.unused = min(a.unused, a.numFree)
	case a.untouched != 0:
		at = a.untouched
		a.unlink(&a.untouched, at)
	case len(a.chunks)*MaxBlock < len(a.mem):
		a.chunks = append(a.chunks, chunk{})
		at = uint32(len(a.chunks))
	default:
		return 0
	}
	a.setClass(at, class)
	return at
}

// setClass divides a chunk that is on no list.
func (a *Arena) setClass(at uint32, class int) {
	c := &a.chunks[at-1]
	c.class, c.used = int8(class), 0
	blocks := MaxBlock / minBlock >> class
	for i := range c.taken { // what is not there counts as taken
		c.taken[i] = ^uint64(0)
		if n := blocks - 64*i; n > 0 && n < 64 {
			c.taken[i] <<= n
		} else if n > 0 {
			c.taken[i] = 0
		}
	}
	a.link(&a.partial[class], at)
}

func (a *Arena) take(at uint32, block int) {
	c := &a.chunks[at-1]
	c.taken[block/64] |= 1 << (block % 64)
	c.used++
	a.used += int64(minBlock) << c.class
	if int(c.used) == MaxBlock/minBlock>>c.class {
		a.unlink(&a.partial[c.class], at)
	}
}

func (a *Arena) put(from int) {
	at := uint32(from/MaxBlock + 1)
	c := &a.chunks[at-1]
	if c.class < 0 {
		panic("ledger: Put of a free block")
	}
	block := from % MaxBlock / (minBlock << c.class)
	if c.taken[block/64]&(1<<(block%64)) == 0 {
		panic("ledger: Put of a free block")
	}
	full := int(c.used) == MaxBlock/minBlock>>c.class
	c.taken[block/64] &^= 1 << (block % 64)
	c.used--
	a.used -= int64(minBlock) << c.class
	switch {
	case c.used == 0:
		if !full {
			a.unlink(&a.partial[c.class], at)
		}
		c.class = -1
		if a.numFree >= maxFree {
			a.release(at)
			return
		}
		a.link(&a.free, at)
		a.numFree++
	case full:
		a.link(&a.partial[c.class], at)
	}
}

func (a *Arena) freeRef(ref uint32) {
	if _, from, ok := a.find(ref); ok {
		a.put(from)
	}
}

// addFree adds the next chunk to the free ones.
func (a *Arena) addFree() {
	a.chunks = append(a.chunks, chunk{class: -1})
	a.link(&a.free, uint32(len(a.chunks)))
	a.numFree++
}

// release gives the memory of a free chunk, which is on no list, back to the kernel.
func (a *Arena) release(at uint32) {
	a.kernel.PunchHole(a.fd, a.offset+int64(at-1)*MaxBlock, MaxBlock)
	a.link(&a.untouched, at)
}

func (a *Arena) link(list *uint32, at uint32) {
	c := &a.chunks[at-1]
	c.prev, c.next = 0, *list
	if c.next != 0 {
		a.chunks[c.next-1].prev = at
	}
	*list = at
}

func (a *Arena) unlink(list *uint32, at uint32) {
	c := &a.chunks[at-1]
	if c.prev != 0 {
		a.chunks[c.prev-1].next = c.next
	} else {
		*list = c.next
	}
	if c.next != 0 {
		a.chunks[c.next-1].prev = c.prev
	}
}
