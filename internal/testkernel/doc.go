// Package testkernel is for tests only: a kernel that counts system calls, and that fails when a
// test wants it to.
package testkernel
