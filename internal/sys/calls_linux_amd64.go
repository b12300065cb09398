package sys

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	otherABI  = 0x40000000 // __X32_SYSCALL_BIT, asm/unistd.h
)

// ofArch are calls that other architectures do not have.
var ofArch = []listed{
	{unix.SYS_POLL, nil}, // C libraries' resolvers
	{unix.SYS_TIME, nil}, // where the vDSO cannot answer
}
