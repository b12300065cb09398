package testkernel

import "syscall"

// Protect makes the pages of b, which begins at one, read-only, or writable again. With
// [runtime/debug.SetPanicOnFault], the first store to them is then a panic, whose value has a method Addr: what
// stores to shared memory is interrupted there, as if its process had died.
func Protect(b []byte, writable bool) error {
	prot := syscall.PROT_READ
	if writable {
		prot |= syscall.PROT_WRITE
	}
	return syscall.Mprotect(b, prot)
}
