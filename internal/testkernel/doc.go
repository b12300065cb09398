// Package testkernel is for tests only: a kernel that counts what it is asked,
// and that fails when a test wants it to.
package testkernel
