package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

// ErrTooLarge is the error of an answer that is larger than the client allows.
var ErrTooLarge = errors.New("the answer is too large")

// Read reads all of r, which must not have more than most bytes: otherwise the error wraps ErrTooLarge.
func Read(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)
	}
	return b, err
}

// A BoundedReader reads from R at most Left bytes; then its error wraps ErrTooLarge. A reader of messages
// sets Left before each.
type BoundedReader struct {
	R    io.Reader
	Left int64
}

func (b *BoundedReader) Read(p []byte) (int, error) {
	if b.Left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.R.Read(p[:min(int64(len(p)), b.Left)])
	b.Left -= int64(n)
	return n, err
}

// A StatusError is an answer with a status that reports a failure.
type StatusError struct {
	Status int
	Text   string // the beginning of the body, on one line
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// Line returns the beginning of a text from outside on one line, for messages.
func Line(b []byte) string {
	const most = 200
	cut := len(b) > most
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), most)]), "?")), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
	if cut {
		s += "..."
	}
	return s
}
