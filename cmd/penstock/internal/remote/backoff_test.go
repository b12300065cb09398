package remote

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestBackoff(t *testing.T) {
	b := Backoff{Min: time.Second, Max: 8 * time.Second, Healthy: time.Minute}
	bounds := []time.Duration{1, 2, 4, 8, 8, 8}
	for i, bound := range bounds {
		bound *= time.Second
		if got := b.Next(); got < bound/10 || got > bound {
			t.Errorf("wait %d is %v, want at most %v", i, got, bound)
		}
	}
	// What works only for a moment does not begin anew.
	b.Working()
	if b.Next(); b.bound != 8*time.Second {
		t.Errorf("the bound is %v", b.bound)
	}
	b.Working()
	b.working = b.working.Add(-time.Hour)
	b.Working()
	if b.Next(); b.bound != time.Second {
		t.Errorf("the bound is %v after an hour of health", b.bound)
	}
	var zero Backoff
	if got := zero.Next(); got > 500*time.Millisecond || got <= 0 {
		t.Error(got)
	}
	for range 100 {
		if got := zero.Next(); got > 30*time.Second {
			t.Error(got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Clients that lost a server at the same moment do not come back at the same moment.
func TestBackoffSpreads(t *testing.T) {
	var earliest, latest time.Duration = time.Hour, 0
	for range 1000 {
		b := Backoff{Min: time.Second}
		d := b.Next()
		earliest, latest = min(earliest, d), max(latest, d)
	}
	if earliest > 200*time.Millisecond || latest < 900*time.Millisecond {
		t.Errorf("from %v to %v", earliest, latest)
	}
}

func TestRead(t *testing.T) {
	if b, err := Read(strings.NewReader("12345"), 5); string(b) != "12345" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := Read(strings.NewReader("123456"), 5); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	r := &BoundedReader{R: strings.NewReader("123456"), Left: 4}
	buf := make([]byte, 10)
	if n, err := r.Read(buf); n != 4 || err != nil {
		t.Error(n, err)
	}
	if _, err := r.Read(buf); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte("a\n\tb\x00\xff\u0085\u2028" + strings.Repeat("x", 300)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := Line(b); !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r\t\x00\x1b\u0085\u2028\u2029") || len(s) > 1000 {
			t.Errorf("%q", s)
		}
	})
}

// What has worked once begins anew once: a server that fails from then on is asked less and less often.
func TestBackoffAfterItHasWorked(t *testing.T) {
	b := Backoff{Min: time.Second, Max: time.Minute, Healthy: time.Nanosecond, bound: 32 * time.Second, working: time.Now().Add(-time.Hour)}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if b.Next(); b.bound != want {
			t.Errorf("the bound is %v, want %v", b.bound, want)
		}
	}
}
