package sys

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	otherABI  = 0x40000000 // __X32_SYSCALL_BIT, asm/unistd.h
)

// ofArch are calls that other architectures do not have.
var ofArch = []listed{
	{unix.SYS_ARCH_PRCTL, rule{{is(0, 0x1002)}}}, // ARCH_SET_FS: threads of C libraries
	{unix.SYS_POLL, nil},                         // C libraries
	{unix.SYS_STAT, nil},                         // package syscall
	{unix.SYS_OPEN, nil},                         // the runtime; Landlock restricts which
	{unix.SYS_TIME, nil},                         // where the vDSO cannot answer
}
