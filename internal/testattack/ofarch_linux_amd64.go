package testattack

import "golang.org/x/sys/unix"

// ofArch are attempts with calls that other architectures do not have.
var ofArch = []attempt{
	call("memfd_secret", unix.SYS_MEMFD_SECRET, bad),
	call("iopl", unix.SYS_IOPL, 3),
	call("ioperm", unix.SYS_IOPERM, bad, bad, 1),
	call("modify_ldt", unix.SYS_MODIFY_LDT, 99, 0, 0),
	call("setrlimit, as of old", unix.SYS_SETRLIMIT, bad, bad),
	call("uselib", unix.SYS_USELIB, bad),
	{"read by the number of x32", []errno{unix.EPERM}, func(Target) errno { return raw(0x40000000|unix.SYS_READ, bad, bad, 0) }},
	{"getpid by the number of x32", []errno{unix.EPERM}, func(Target) errno { return raw(0x40000000|unix.SYS_GETPID, 0, 0, 0) }},
}
