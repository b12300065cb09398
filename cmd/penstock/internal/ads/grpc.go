package ads

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Framing of gRPC over HTTP/2, as far as one stream of uncompressed messages needs it:
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.

// MaxMessage is the maximum size of a message from the control plane.
const MaxMessage = 16 << 20

// prefixSize is the size of what precedes each message: a flag and a length of four bytes.
const prefixSize = 5

// appendFrame appends a message with its prefix.
func appendFrame(b, message []byte) []byte {
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// readFrame reads one message. The error is io.EOF at the end of the stream, between messages.
func readFrame(r io.Reader, most int) ([]byte, error) {
	size, err := readPrefix(r, most)
	if err != nil {
		return nil, err
	}
	return readMessage(r, size)
}

// readPrefix reads what precedes a message, and returns its size.
func readPrefix(r io.Reader, most int) (int, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, err
	}
	if prefix[0] != 0 {
		return 0, fmt.Errorf("gRPC: compressed message (flag %d), although no compression was offered", prefix[0])
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if uint64(size) > uint64(most) {
		return 0, fmt.Errorf("gRPC: message of %d bytes; allowed: up to %d", size, most)
	}
	return int(size), nil
}

// readMessage reads a message. What has not arrived costs nothing: the buffer grows with what has.
func readMessage(r io.Reader, size int) (b []byte, err error) {
	for len(b) < size {
		n := min(size-len(b), max(len(b), 64<<10))
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(r, b[len(b)-n:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

// A statusError is how the control plane ended a stream.
type statusError struct {
	code    int
	message string
}

// Codes of gRPC that have a meaning here.
const (
	codeOK            = 0
	codeUnknown       = 2
	codeInvalid       = 3
	codeUnimplemented = 12
	codeUnauthorized  = 16
)

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

func (e *statusError) Error() string {
	name := "code " + strconv.Itoa(e.code)
	if e.code >= 0 && e.code < len(codeNames) {
		name = codeNames[e.code]
	}
	text := "the control plane ended the stream: " + name
	if e.message != "" {
		text += ": " + e.message
	}
	if e.code == codeUnimplemented {
		text += " (it must serve DeltaAggregatedResources of envoy.service.discovery.v3)"
	}
	return text
}

// statusOf returns the status that a header or trailer has, as an error, and whether it has one.
func statusOf(h http.Header) (error, bool) {
	s := h.Get("Grpc-Status")
	if s == "" {
		return nil, false
	}
	code, err := strconv.Atoi(s)
	if err != nil || code < 0 {
		code = codeUnknown
	}
	message := h.Get("Grpc-Message")
	if decoded, err := url.PathUnescape(message); err == nil {
		message = decoded
	}
	return &statusError{code, OneLine(message)}, true
}

// checkAnswer returns an error if an answer is not the beginning of a gRPC stream.
func checkAnswer(r *http.Response) error {
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("the control plane answered %s", OneLine(r.Status))
	}
	if r.ProtoMajor != 2 {
		return fmt.Errorf("the control plane speaks %s; HTTP/2 is needed", OneLine(r.Proto))
	}
	if err, ok := statusOf(r.Header); ok {
		return err // headers only
	}
	if kind := r.Header.Get("Content-Type"); kind != "application/grpc" && !strings.HasPrefix(kind, "application/grpc+") {
		return fmt.Errorf("the control plane answered with content of type %q; expected application/grpc", OneLine(kind))
	}
	return nil
}

// maxText is the maximum length of a text of the control plane in a message.
const maxText = 300

// OneLine makes a text of the control plane fit for a message: one line, and not too long.
func OneLine(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == 0x2028 || c == 0x2029 || c == 0xfeff {
			return ' '
		}
		return c
	}, s), "?")
}
