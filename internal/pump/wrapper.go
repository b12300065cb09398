package pump

import "net"

// Wrapper is a connection around another one that does not change the bytes; package splice has
// the interface that users see.
type Wrapper interface {
	// Unwrap returns the wrapped connection.
	Unwrap() net.Conn
	// TakeRead returns what the wrapper has already read from the wrapped connection and not yet
	// returned to a reader, and forgets it. The caller must deliver those bytes first, and reads
	// from the wrapped connection from then on.
	TakeRead() []byte
}

// Inner returns the connection inside all wrappers.
func Inner(c net.Conn) net.Conn {
	for {
		w, ok := c.(Wrapper)
		if !ok {
			return c
		}
		c = w.Unwrap()
	}
}

// TakeRead returns what the wrappers around Inner(c) have read from it, in the order of the stream.
func TakeRead(c net.Conn) []byte {
	var read []byte
	for {
		w, ok := c.(Wrapper)
		if !ok {
			return read
		}
		// What an outer wrapper holds came earlier in the stream.
		if more := w.TakeRead(); len(more) > 0 {
			read = append(read[:len(read):len(read)], more...)
		}
		c = w.Unwrap()
	}
}
