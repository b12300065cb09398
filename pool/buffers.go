package pool

import (
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"
)

// MaxBuffer is the length of the largest buffer that [Buffers] keeps.
const MaxBuffer = 1 << 20

// Buffers keeps byte buffers for reuse. It has size classes from 64 bytes to
// [MaxBuffer], with four classes for each power of two. Buffers age as the objects of a
// [Pool] do.
//
// The zero Buffers is ready to use. It must not be copied after first use. Multiple
// goroutines may call its methods simultaneously. Neither Get nor Put allocates memory
// for a slice header.
type Buffers struct {
	// Max is the maximum size of all buffers that are kept, in bytes; 0 means no limit.
	// It must not be changed after first use.
	Max int

	class    [classes]Pool[*byte]
	oversize atomic.Uint64
	kept     atomic.Int64 // bytes; only counted if there is a Max
	once     sync.Once
}

// BuffersStats are the statistics of a [Buffers].
type BuffersStats struct {
	Classes  []ClassStats // of the size classes that were used, in ascending order
	Oversize uint64       // calls of Get for more than MaxBuffer bytes
	Bytes    int          // gauge: bytes kept
}

// ClassStats are the statistics of one size class of a [Buffers]. A Get that finds no
// buffer makes one, so Gets - Hits buffers were made; News and Live are 0.
type ClassStats struct {
	Size int // of each buffer, in bytes
	Stats
}

// Get returns a buffer of length n with arbitrary contents. Its capacity is at least 64,
// and otherwise less than n + n/4. A buffer of more than [MaxBuffer] bytes is newly
// allocated. Get panics if n is negative.
//
// The buffer belongs to the caller, who may give it back with Put.
func (b *Buffers) Get(n int) []byte {
	if n > MaxBuffer {
		b.oversize.Add(1)
		return make([]byte, n)
	}
	if b.Max > 0 {
		b.once.Do(b.countDrops)
	}
	c := classOf(n)
	size := classSize(c)
	p := b.class[c].Get()
	if p == nil {
		return make([]byte, size)[:n]
	}
	if b.Max > 0 {
		b.kept.Add(-int64(size))
	}
	buf := unsafe.Slice(p, size)
	if debugging {
		checkPoison(buf)
	}
	return buf[:n]
}

// Put gives a buffer to b for reuse. The caller must not use any of its memory, up to its
// capacity, any more. The buffer need not come from Get. If its capacity is less than 64
// or more than [MaxBuffer], or if it would exceed Max, it is left to the garbage
// collector.
func (b *Buffers) Put(buf []byte) {
	n := cap(buf)
	if n < 1<<minShift || n > MaxBuffer {
		return
	}
	c := classOf(n)
	if classSize(c) > n {
		c-- // a buffer between two classes is one of the smaller class
	}
	size := classSize(c)
	if b.Max > 0 {
		b.once.Do(b.countDrops)
		if b.kept.Add(int64(size)) > int64(b.Max) {
			b.kept.Add(-int64(size))
			return
		}
	}
	if debugging {
		poison(buf[:size])
	}
	b.class[c].Put(unsafe.SliceData(buf))
}

// countDrops has aged buffers subtracted from kept. It is called before the first use of
// any class, because a pool reads Drop after its first use.
func (b *Buffers) countDrops() {
	for c := range b.class {
		size := int64(classSize(c))
		b.class[c].Drop = func(*byte) { b.kept.Add(-size) }
	}
}

// Drain drops all buffers and returns their size in bytes.
func (b *Buffers) Drain() int {
	sum := 0
	for c := range b.class {
		sum += b.class[c].Drain() * classSize(c)
	}
	return sum
}

// Stats returns the statistics. It is too slow for a hot path.
func (b *Buffers) Stats() BuffersStats {
	s := BuffersStats{Oversize: b.oversize.Load()}
	for c := range b.class {
		if st := b.class[c].Stats(); st.Gets+st.Puts > 0 {
			st.Live = 0
			s.Classes = append(s.Classes, ClassStats{Size: classSize(c), Stats: st})
			s.Bytes += st.Kept * classSize(c)
		}
	}
	return s
}

// poisoned is the value of the bytes of a pooled buffer in a debug build.
const poisoned = 0xDB

func poison(buf []byte) {
	for i := range buf {
		buf[i] = poisoned
	}
}

func checkPoison(buf []byte) {
	for i, x := range buf {
		if x != poisoned {
			panic("pool: a buffer was written to after Put, at index " + strconv.Itoa(i))
		}
	}
}
