package feature

import "github.com/penstock/penstock/internal/sys"

// Features that stream relays use. Each release is the one that contains the named commit;
// docs/kernel.md has the table.
var (
	// Splice is splice(2) with a Unix stream socket as its source, the most recent of the pairs
	// (commit 2b514574f7e8; TCP sources: 2.6.17).
	Splice = newProbe("splice", Version{4, 2}, sys.ProbeSplice)

	// ReusePort is SO_REUSEPORT for TCP listeners (commit c617f398edd4).
	ReusePort = newProbe("SO_REUSEPORT", Version{3, 9}, sys.ProbeReusePort)

	// EpollExclusive is EPOLLEXCLUSIVE: one waiter of several is woken (commit
	// df0108c5da56).
	EpollExclusive = newProbe("EPOLLEXCLUSIVE", Version{4, 5}, sys.ProbeEpollExclusive)

	// EpollPwait2 is epoll_pwait2(2): nanosecond timeouts (commit 58169a52ebc9).
	EpollPwait2 = newProbe("epoll_pwait2", Version{5, 11}, sys.ProbeEpollPwait2)

	// RcvLowat is SO_RCVLOWAT on TCP with no wake-up below the mark (commit
	// 03f45c883c6f; the option itself is older).
	RcvLowat = newProbe("SO_RCVLOWAT", Version{4, 18}, sys.ProbeRcvLowat)

	// PipeSize is F_SETPIPE_SZ (fcntl(2)).
	PipeSize = newProbe("F_SETPIPE_SZ", Version{2, 6, 35}, sys.ProbePipeSize)

	// KernelTLS is TLS 1.3 in the kernel, with the three ciphers that connections have (commits 130b392c6cd6 and 74ea610602fe). It is a module that kernels
	// may be built without, so that no release has it for sure.
	KernelTLS = newProbe("kTLS", Version{5, 11}, sys.ProbeKernelTLS)
)

// Stream lists the probes in this file, for tests and for reports.
var Stream = []*Probe{Splice, ReusePort, EpollExclusive, EpollPwait2, RcvLowat, PipeSize}
