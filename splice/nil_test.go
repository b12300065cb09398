package splice

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// A connection that is nil is an error, not a crash of the process in a goroutine.
func TestRelayNil(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, c := range []struct {
		a, b net.Conn
		want Outcome
	}{
		{nil, nil, OutcomeAFailed}, {nil, a, OutcomeAFailed}, {a, nil, OutcomeBFailed},
		{(*net.TCPConn)(nil), a, OutcomeAFailed}, {a, (*net.UnixConn)(nil), OutcomeBFailed}, {a, (*tls.Conn)(nil), OutcomeBFailed},
		{(*Conn)(nil), a, OutcomeAFailed}, {a, (*Conn)(nil), OutcomeBFailed},
		{NewConn(nil, nil), a, OutcomeAFailed}, {a, NewConn((*net.TCPConn)(nil), nil), OutcomeBFailed},
	} {
		if r, err := Relay(c.a, c.b); r.Outcome != c.want || !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%T and %T: %v, %v", c.a, c.b, r.Outcome, err)
		}
	}
	if n, err := (*Conn)(nil).Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("read: %d, %v", n, err)
	}
	var none context.Context
	if r, err := RelayContext(none, a, b); r.Outcome != OutcomeCanceled || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("no context: %v, %v", r.Outcome, err)
	}
}

// So it is for Copy, to and from a socket and anything else.
func TestCopyNil(t *testing.T) {
	a, _ := testnet.Pair(t, "tcp4")
	for _, none := range []net.Conn{(*net.TCPConn)(nil), (*Conn)(nil), NewConn(nil, nil), NewConn((*net.TCPConn)(nil), nil)} {
		for _, c := range []net.Conn{a, struct{ net.Conn }{a}} {
			if n, err := Copy(c, none); n != 0 || !errors.Is(err, os.ErrInvalid) {
				t.Errorf("from %+v: %d, %v", none, n, err)
			}
			if n, err := Copy(none, c); n != 0 || !errors.Is(err, os.ErrInvalid) {
				t.Errorf("to %+v: %d, %v", none, n, err)
			}
		}
	}
}
