package account

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func record(c relay.Cause) *relay.Record {
	return &relay.Record{
		A:        relay.Addr{Network: relay.TCP, IP: netip.MustParseAddrPort("192.0.2.1:1000")},
		B:        relay.Addr{Network: relay.Unix, Path: "/run/app.sock"},
		Attempts: 1,
		AB:       relay.Transfer{Read: 10, Written: 10, Path: relay.PathCopy, Why: relay.WhySmall},
		BA:       relay.Transfer{Read: 30, Written: 20, Spliced: 20, Path: relay.PathSplice},
		Duration: 1500 * time.Millisecond,
		Cause:    c,
	}
}

func TestLine(t *testing.T) {
	var out bytes.Buffer
	j := NewJournal(textLog(&out), LogAll)
	j.Enter(record(relay.CauseEnd))
	r := record(relay.CauseNoUpstream)
	r.Err, r.Attempts = errors.New("connection refused"), 2
	j.Enter(r)
	j.Close()
	const want = `level=INFO msg=flow cause=end client=tcp://192.0.2.1:1000 upstream=unix:///run/app.sock sent=10 received=20 duration=1.5s dropped=10 path_sent="copy: small reads" path_received=splice
level=WARN msg=flow cause=no-upstream client=tcp://192.0.2.1:1000 upstream=unix:///run/app.sock sent=10 received=20 duration=1.5s dropped=10 attempts=2 path_sent="copy: small reads" path_received=splice error="connection refused"
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestWhich(t *testing.T) {
	for which, want := range map[string]int{LogNone: 0, LogFailed: 1, LogAll: 3} {
		var out bytes.Buffer
		j := NewJournal(textLog(&out), which)
		for _, c := range []relay.Cause{relay.CauseEnd, relay.CauseBReset, relay.CauseConnectTimeout} {
			j.Enter(record(c))
		}
		j.Close()
		if n := strings.Count(out.String(), "\n"); n != want {
			t.Errorf("%s: %d lines, want %d", which, n, want)
		}
	}
}

// stuck is a log whose reader has stopped.
type stuck struct {
	release chan struct{}
	mu      sync.Mutex
	out     bytes.Buffer
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

// A log that nobody reads must not stop the loops; each flow is either written
// or counted.
func TestStuckLog(t *testing.T) {
	w := &stuck{release: make(chan struct{})}
	j := NewJournal(textLog(w), LogAll)
	const flows = 5 * maxWaiting
	for range flows {
		j.Enter(record(relay.CauseEnd)) // returns, or the test never ends
	}
	close(w.release)
	j.Close()
	text := w.out.String()
	lines := strings.Count(text, "msg=flow")
	lost := 0
	for line := range strings.Lines(text) {
		if _, digits, ok := strings.Cut(strings.TrimSpace(line), "flows="); ok {
			n, err := strconv.Atoi(digits)
			if err != nil {
				t.Fatal(err)
			}
			lost += n
		}
	}
	if lines > 2*maxWaiting || lines+lost != flows {
		t.Errorf("%d lines and %d counted, of %d flows", lines, lost, flows)
	}
}

func TestEnterAllocatesNothing(t *testing.T) {
	j := NewJournal(textLog(io.Discard), LogFailed)
	defer j.Close()
	r := record(relay.CauseEnd)
	if n := testing.AllocsPerRun(1000, func() { j.Enter(r) }); n != 0 {
		t.Errorf("%v allocations for a flow that is not logged", n)
	}
}
