//go:build linux && !amd64 && !arm64

package sys

import "golang.org/x/sys/unix"

// CallsKnown reports whether this package has a list of calls for this architecture.
const CallsKnown = false

// CallFilter says how the list of calls depends on the policy.
type CallFilter struct{ Log, Modes, Multipath, Unix, NoFastOpen bool }

func assembleCalls(CallFilter, int) ([]unix.SockFilter, error) { return nil, ENOSYS }
