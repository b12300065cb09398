//go:build !linux

package splice

// Nothing is spliced here, so that no pipe is ever on lease.
func leased() int64 { return 0 }

func takePipes() (giveBack func()) { return func() {} }
