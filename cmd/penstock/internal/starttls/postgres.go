package starttls

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/penstock/penstock/relay"
)

// PostgreSQL is the protocol of PostgreSQL's clients and servers: the first message of a connection, and its answer (PostgreSQL's
// documentation, "Message Formats").
type PostgreSQL struct{}

// Codes of first messages.
const (
	codeCancel  = 1234<<16 | 5678
	codeRequest = 1234<<16 | 5679
	codeGSS     = 1234<<16 | 5680
	major       = 3 // of the protocol
)

const (
	headSize   = 8     // the length, which includes itself, and the code
	startMost  = 10000 // bytes of a StartupMessage, as in PostgreSQL
	cancelMost = headSize + 4 + 256
)

// The request for TLS and its answers.
var (
	request = []byte{0, 0, 0, headSize, codeRequest >> 24, codeRequest >> 16 & 0xff, codeRequest >> 8 & 0xff, codeRequest & 0xff}
	yes     = []byte{'S'} // TLS begins
	no      = []byte{'N'} // it does not, and the connection goes on
)

// Parse is that of [Protocol].
func (PostgreSQL) Parse(b []byte) (Kind, int, error) {
	var head [headSize]byte
	have := copy(head[:], b)
	size, code := int(binary.BigEndian.Uint32(head[:])), binary.BigEndian.Uint32(head[4:])
	switch {
	case have == 0:
		return 0, 0, ErrIncomplete
	case head[0] == 0x16: // handshake, RFC 8446, section 5.1
		return KindTLS, 0, nil
	case size > startMost, have >= 4 && size < headSize:
		return 0, 0, ErrUnknown // the bytes that are not there yet count as zeros
	case have < headSize:
		return 0, 0, ErrIncomplete
	}
	kind, fits := KindClear, code>>16 == major
	switch code {
	case codeRequest:
		kind, fits = KindRequest, size == headSize
	case codeGSS:
		kind, fits = KindOther, size == headSize
	case codeCancel:
		kind, fits = KindCancel, size > headSize+4 && size <= cancelMost
	}
	switch {
	case !fits:
		return 0, 0, ErrUnknown
	case len(b) < size:
		return 0, 0, ErrIncomplete
	}
	return kind, size, nil
}

// refusal is the ErrorResponse for a client that begins in the clear.
var refusal = func() []byte {
	b := []byte{'E', 0, 0, 0, 0}
	for _, field := range []string{"SFATAL", "VFATAL", "C28000", "Mthis listener requires TLS", "Huse sslmode=require, verify-ca or verify-full"} {
		b = append(append(b, field...), 0)
	}
	b = append(b, 0)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-1))
	return b
}()

// An answerError says in words what a server has answered.
type answerError struct {
	text string
	err  error
}

func (e *answerError) Error() string { return e.text }
func (e *answerError) Unwrap() error { return e.err }

// Request is that of [Protocol]: SSLRequest, and the answer with which TLS begins.
func (PostgreSQL) Request() (send, expect []byte) { return request, yes }

// Reply is that of [Protocol].
func (PostgreSQL) Reply(k Kind, taken bool) []byte {
	switch {
	case k == KindRequest:
		return yes
	case k == KindOther:
		return no
	case k == KindClear && !taken:
		return refusal
	}
	return nil
}

// Explain is that of [Protocol].
func (PostgreSQL) Explain(err error) error {
	answer, ok := errors.AsType[*relay.AnswerError](err)
	if !ok {
		return err
	}
	text := "PostgreSQL: the server ended the connection instead of answering SSLRequest"
	switch got := answer.Got; {
	case bytes.Equal(got, no):
		text = "PostgreSQL: the server does not offer TLS, it answered SSLRequest with N; allowed: ssl = on in its configuration"
	case bytes.HasPrefix(got, yes):
		text = "PostgreSQL: the server sent more than its answer to SSLRequest"
	case bytes.HasPrefix(got, []byte{'E'}):
		text = "PostgreSQL: the server answered SSLRequest with an error"
	case len(got) > 0:
		text = "PostgreSQL: the answer to SSLRequest is none; is the member a server of PostgreSQL?"
	}
	return &answerError{text, err}
}
