// Package sys is the only door to the kernel: unsafe, syscall and
// golang.org/x/sys live here and nowhere else in the library.
//
// Every call takes and returns plain values and never waits, unless its
// comment says so.
package sys
