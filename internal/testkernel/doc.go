// Package testkernel is for tests only: a kernel that counts system calls, and that fails when a
// test wants it to; and what follows a process of its own from outside, by instructions or by system calls.
package testkernel
