package splice

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"
)

// A connection that is nil is an error, not a crash of the process in a goroutine.
func TestRelayNil(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, c := range []struct {
		a, b net.Conn
		want Cause
	}{
		{nil, nil, CauseAFailed}, {nil, a, CauseAFailed}, {a, nil, CauseBFailed},
		{(*net.TCPConn)(nil), a, CauseAFailed}, {a, (*net.UnixConn)(nil), CauseBFailed}, {a, (*tls.Conn)(nil), CauseBFailed},
		{NewConn(nil, nil), a, CauseAFailed}, {a, NewConn((*net.TCPConn)(nil), nil), CauseBFailed},
	} {
		if r, err := Relay(c.a, c.b); r.Cause != c.want || !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%T and %T: %v, %v", c.a, c.b, r.Cause, err)
		}
	}
	var none context.Context
	if r, err := RelayContext(none, a, b); r.Cause != CauseCanceled || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("no context: %v, %v", r.Cause, err)
	}
}
