package splice

import (
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
	}{{nil, nil, CauseAFailed}, {nil, a, CauseAFailed}, {a, nil, CauseBFailed}} {
		if r, err := Relay(c.a, c.b); r.Cause != c.want || !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%v and %v: %v, %v", c.a, c.b, r.Cause, err)
		}
	}
}
