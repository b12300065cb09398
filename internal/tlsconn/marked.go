package tlsconn

import "io"

// Marked, as the KeyLogWriter of a configuration, says that connections made with it may be given to the kernel. Next is the
// writer that the configuration had before; nil: none.
type Marked struct{ Next io.Writer }

// Write implements [io.Writer].
func (m Marked) Write(p []byte) (int, error) {
	if m.Next == nil {
		return len(p), nil
	}
	return m.Next.Write(p)
}
