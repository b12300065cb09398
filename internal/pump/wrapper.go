package pump

import "net"

// Wrapper is a connection around another one that changes nothing of its bytes.
type Wrapper interface {
	// Unwrap gives the connection inside.
	Unwrap() net.Conn
	// TakeRead gives what the wrapper has already read from the connection
	// inside and not yet handed out, and forgets it: whoever calls it delivers
	// those bytes first, and reads from the connection inside from then on.
	TakeRead() []byte
}

// Inner gives the connection inside all wrappers.
func Inner(c net.Conn) net.Conn {
	for {
		w, ok := c.(Wrapper)
		if !ok {
			return c
		}
		c = w.Unwrap()
	}
}

// TakeRead gives what the wrappers around Inner(c) have read from it, in the
// order of the stream.
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
