package tlsconn

import (
	"errors"
	"io"
)

// ErrKeyUpdate is [Conn.Err] of a connection of the kernel's whose peer has changed its keys: only the two ends knew the secret that the next
// ones follow from, and this one has forgotten it.
var ErrKeyUpdate = errors.New("tls: the peer has changed its keys, and the kernel, which has the connection, cannot follow")

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
