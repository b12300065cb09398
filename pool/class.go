package pool

import "math/bits"

// Buffers have four size classes for each power of two: 64, 80, 96, 112, 128, 160 … bytes.
// Class c holds (4 + c%4) << (minShift - 2 + c/4) bytes.
const (
	minShift = 6
	maxShift = 20 // of MaxBuffer
	classes  = (maxShift-minShift)*4 + 1
)

// classSize returns the length of the buffers of class c.
func classSize(c int) int {
	return (4 + c&3) << (minShift - 2 + c>>2)
}

// classOf returns the smallest class that holds n bytes, which must be at most MaxBuffer.
// It panics if n is negative.
func classOf(n int) int {
	if n <= 1<<minShift {
		_ = make([]byte, min(n, 0)) // panics as make does
		return 0
	}
	// The top three bits of n-1 name the class that holds less than n.
	shift := bits.Len(uint(n-1)) - 3
	return (shift-(minShift-2))*4 + (n-1)>>shift - 4 + 1
}
