package pool

import (
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"
)

// MaxBuffer is the length of the largest buffer that [Buffers] keeps.
const MaxBuffer = 1 << maxShift

// Buffers keeps byte buffers by size class, from 64 bytes to [MaxBuffer], four
// classes a doubling. They age as the objects of a [Pool] do.
//
// The zero Buffers works; it must not be copied after first use. All methods are
// safe for concurrent use. Neither Get nor Put allocates for the slice's header.
type Buffers struct {
	// Max is the most bytes that are kept, over all classes. 0 means no bound.
	// It must not change after the first use.
	Max int

	class    [classes]Pool[*byte]
	oversize atomic.Uint64
	kept     atomic.Int64 // bytes; only if there is a bound
	once     sync.Once
}

// BuffersStats are the numbers of a [Buffers].
type BuffersStats struct {
	Classes  []ClassStats // one a size class that was ever used, by size
	Oversize uint64       // Gets above MaxBuffer: made, and not kept
	Bytes    int          // bytes kept now
}

// ClassStats are the numbers of one size class. A Get that found nothing made a
// buffer, so that Gets - Hits of them were made; News and Live are 0.
type ClassStats struct {
	Size int // bytes of each buffer
	Stats
}

// Get returns a buffer of length n. Its bytes are whatever the last user left.
// Its capacity is 64, or below n + n/4. A buffer above [MaxBuffer] is made to
// measure, and Put does not keep it.
//
// The buffer belongs to the caller, who may Put it back. Get panics if n is
// negative, as make does.
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

// Put gives a buffer back. After it the memory belongs to b, from the first byte
// of buf to its capacity; nobody else may use any part of that. A buffer need
// not come from Get. One of less than 64 bytes of capacity, or of more than
// [MaxBuffer], is left to the garbage collector, and so is one that would exceed
// Max.
func (b *Buffers) Put(buf []byte) {
	n := cap(buf)
	if n < 1<<minShift || n > MaxBuffer {
		return
	}
	c := classOf(n)
	if classSize(c) > n {
		c-- // between two classes it serves the smaller
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

// countDrops has the buffers that age out counted. It comes before the first use
// of any class: a Get is one too, after which a pool's ager reads Drop.
func (b *Buffers) countDrops() {
	for c := range b.class {
		size := int64(classSize(c))
		b.class[c].Drop = func(*byte) { b.kept.Add(-size) }
	}
}

// Drain drops all buffers and returns how many bytes that were.
func (b *Buffers) Drain() int {
	sum := 0
	for c := range b.class {
		sum += b.class[c].Drain() * classSize(c)
	}
	return sum
}

// Stats returns the numbers. It is meant for a metrics page and for tests, not
// for a hot path.
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

// poisoned is what a pooled buffer holds in a debug build.
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
