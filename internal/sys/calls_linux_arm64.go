package sys

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0
)

// ofArch are calls that other architectures do not have.
var ofArch []listed
