package sys

import (
	"sync/atomic"
	"unsafe"
)

// Words returns the memory of b as words that are read and written atomically, in place; what is left
// of the last one is left out. b must begin at a multiple of 8, as the pages of a mapping do;
// otherwise Words panics.
func Words(b []byte) []atomic.Int64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%8 != 0 {
		panic("sys: Words: wrong alignment")
	}
	return unsafe.Slice((*atomic.Int64)(p), len(b)/8)
}
