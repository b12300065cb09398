// Package starttls has the protocols that agree on TLS in a few bytes before it begins.
package starttls

import (
	"bytes"
	"errors"
	"io"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Protocol is one of them. It has no state. Another one is a file and a row of protocols.
type Protocol interface {
	// Parse returns how a client begins, and the length of its first message; of a TLS record 0, because it may not be there
	// yet. The message is complete unless the error is ErrIncomplete.
	Parse(b []byte) (Kind, int, error)
	// Reply returns what a client is answered that begins like this, and goes on or is refused; nil: nothing.
	Reply(k Kind, taken bool) []byte
	// Request returns what asks a server for TLS, and the answer with which TLS begins.
	Request() (send, expect []byte)
	// Explain returns the error of [relay.Hooks].Answered in words for operators, which wraps it, if there are any.
	Explain(err error) error
}

// protocols are those that a configuration can name.
var protocols = map[string]Protocol{
	spec.PostgreSQL: PostgreSQL{},
}

// ByName returns the protocol with a name in a configuration; nil: there is none.
func ByName(name string) Protocol {
	if name == "" {
		return nil
	}
	return protocols[name]
}

// Kind is how a client begins.
type Kind uint8

// The kinds.
const (
	KindTLS     Kind = iota + 1 // with a TLS record; libpq: sslnegotiation=direct
	KindRequest                 // it asks for TLS; of PostgreSQL: SSLRequest
	KindOther                   // it asks for what it does not get, and may ask for TLS then; of PostgreSQL: GSSENCRequest
	KindCancel                  // it cancels something of another connection in the clear, which is the whole connection
	KindClear                   // in the clear; of PostgreSQL: StartupMessage
)

// Errors of Parse.
var (
	ErrIncomplete = errors.New("incomplete first message")
	ErrUnknown    = errors.New("not a first message of the protocol")
)

// Ask asks a server for TLS, and waits for its answer until the deadline of the connection.
func Ask(p Protocol, c io.ReadWriter) error {
	send, expect := p.Request()
	if _, err := c.Write(send); err != nil {
		return err
	}
	// As many bytes as that has and no more: what comes behind is not to be taken for something from inside of TLS.
	got := make([]byte, len(expect))
	switch n, err := io.ReadFull(c, got); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && !bytes.Equal(got, expect):
		return p.Explain(&relay.AnswerError{Got: got[:n]})
	default:
		return err
	}
}
