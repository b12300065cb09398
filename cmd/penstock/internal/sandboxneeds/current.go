package sandboxneeds

import "sync/atomic"

// A Current is what this process holds of its sandbox; empty until it has entered. It may be nil.
type Current struct{ atomic.Pointer[Held] }

// Explain returns an error, and says that it is the sandbox's if it is.
func (h *Current) Explain(err error) error {
	if h == nil {
		return err
	}
	return h.Load().Explain(err)
}
