// Package sys makes the system calls of the library. It is the only package that uses unsafe,
// syscall and golang.org/x/sys.
//
// Every call takes and returns plain values and never waits, unless its comment says so.
package sys
