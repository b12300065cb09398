// Package echo has both ends of a trial that only asks whether a relay relays: upstreams that serve connections, and clients that
// want back what they have sent.
package echo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// ErrOther is the error of a client that got other bytes than it has sent.
var ErrOther = errors.New("other bytes came back")

// Ask sends a message and wants it back.
func Ask(c io.ReadWriter, message []byte) error {
	if _, err := c.Write(message); err != nil {
		return err
	}
	back := make([]byte, len(message))
	if _, err := io.ReadFull(c, back); err != nil {
		return err
	}
	if !bytes.Equal(back, message) {
		return fmt.Errorf("%w: %q as %q", ErrOther, message, back)
	}
	return nil
}

// Serve serves each connection of a listener in a goroutine, and closes it then. It returns once the listener is closed and all
// have been served.
func Serve(l net.Listener, serve func(net.Conn)) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer c.Close()
			serve(c)
		})
	}
}
