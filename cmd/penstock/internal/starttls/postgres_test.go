package starttls

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/relay"
)

var postgres PostgreSQL

// What psql 15 and libpq 18 send first, recorded.
var recorded = []struct {
	name, bytes string
	kind        Kind
}{
	{"SSLRequest", "\x00\x00\x00\x08\x04\xd2\x16\x2f", KindRequest},
	{"GSSENCRequest", "\x00\x00\x00\x08\x04\xd2\x16\x30", KindOther},
	{"CancelRequest", "\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x12\x34\x89\xab\xcd\xef", KindCancel},
	{"a CancelRequest of protocol 3.2", "\x00\x00\x00\x2c\x04\xd2\x16\x2e\x00\x00\x12\x34" + strings.Repeat("k", 32), KindCancel},
	{"StartupMessage", "\x00\x00\x00\x41\x00\x03\x00\x00user\x00u\x00database\x00postgres\x00application_name\x00psql\x00client_e\x00\x00", KindClear},
	{"a StartupMessage of protocol 3.2", "\x00\x00\x00\x10\x00\x03\x00\x02user\x00a\x00\x00", KindClear},
	{"direct TLS", "\x16", KindTLS},
}

func TestParse(t *testing.T) {
	for _, c := range recorded {
		size := len(c.bytes)
		if c.kind == KindTLS {
			size = 0
		}
		kind, n, err := postgres.Parse([]byte(c.bytes + "and more"))
		if kind != c.kind || n != size || err != nil {
			t.Errorf("%s: %d, %d, %v", c.name, kind, n, err)
		}
		for i := range size {
			if _, _, err := postgres.Parse([]byte(c.bytes[:i])); err != ErrIncomplete {
				t.Errorf("%d bytes of %s: %v", i, c.name, err)
			}
		}
	}
	if !bytes.Equal(request, []byte(recorded[0].bytes)) {
		t.Errorf("Request is %x", request)
	}
}

func TestParseUnknown(t *testing.T) {
	for _, s := range []string{
		"G", "GET / HTTP/1.1\r\n\r\n", "\x15\x03\x01", "\x00\x01", "\x00\x00\x28", // 10,240 bytes and more
		"\x00\x00\x00\x07", "\x00\x00\x00\x00", "\x00\x00\x00\x09\x04\xd2\x16\x2f", "\x00\x00\x00\x09\x04\xd2\x16\x30",
		"\x00\x00\x00\x0c\x04\xd2\x16\x2e", "\x00\x00\x01\x0d\x04\xd2\x16\x2e", "\x00\x00\x00\x08\x04\xd2\x16\x31",
		"\x00\x00\x00\x08\x00\x02\x00\x00", "\x00\x00\x00\x08\x00\x04\x00\x00",
	} {
		if _, _, err := postgres.Parse([]byte(s)); err != ErrUnknown {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// Ask reads the answer, and nothing behind it.
func TestAsk(t *testing.T) {
	for _, c := range []struct{ answer, want string }{
		{"S", ""}, {"S and more", ""}, {"N", "does not offer TLS"}, {"E\x00\x00\x00\x10SFATAL", "with an error"},
		{"HTTP/1.1 400", "is the member a server"}, {"", "ended the connection"},
	} {
		a, b := net.Pipe()
		asked := make(chan []byte, 1)
		go func() {
			defer b.Close()
			got := make([]byte, len(request))
			io.ReadFull(b, got)
			asked <- got
			io.WriteString(b, c.answer)
		}()
		err := Ask(postgres, a)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.answer, err)
		}
		if rest, _ := io.ReadAll(io.LimitReader(a, int64(max(len(c.answer)-1, 0)))); err == nil && string(rest) != c.answer[1:] {
			t.Errorf("%q is left of %q", rest, c.answer)
		}
		a.Close()
		if got := <-asked; !bytes.Equal(got, request) {
			t.Errorf("asked %x", got)
		}
	}
	if err := postgres.Explain(&relay.AnswerError{Got: []byte("Sx")}); !strings.Contains(err.Error(), "more than its answer") {
		t.Error(err)
	}
	if err := postgres.Explain(io.ErrClosedPipe); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// FuzzStart: what is accepted has the length that it says, and each beginning of it is incomplete.
func FuzzStart(f *testing.F) {
	for _, c := range recorded {
		f.Add([]byte(c.bytes))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(refusal)
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, n, err := postgres.Parse(b)
		switch {
		case err == ErrIncomplete:
			if len(b) >= startMost {
				t.Errorf("%d bytes are incomplete", len(b))
			}
		case err == ErrUnknown:
			if kind != 0 || n != 0 {
				t.Errorf("%d, %d", kind, n)
			}
			for i := range min(len(b), headSize) {
				if k, _, err := postgres.Parse(b[:i]); err == nil {
					t.Errorf("%d, and unknown with more bytes", k)
				}
			}
			return
		case err != nil || kind == 0 || n > len(b) || n > startMost || (n == 0) != (kind == KindTLS):
			t.Fatalf("%d, %d, %v", kind, n, err)
		}
		for i := range min(len(b), max(n, 1)) {
			if _, _, err := postgres.Parse(b[:i]); err != ErrIncomplete {
				t.Fatalf("%d bytes: %v", i, err)
			}
		}
		if kind > 0 {
			if k, m, err := postgres.Parse(append(bytes.Clone(b), 0xff)); k != kind || m != n || err != nil {
				t.Errorf("with one byte more %d, %d, %v", k, m, err)
			}
		}
	})
}
