package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// fast makes samples follow each other without a second between them.
func fast(s *Server) { s.stream.every = time.Millisecond }

// soon waits for what another goroutine brings about.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(eventually); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", eventually, what)
		}
	}
}

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers)
}

func TestStream(t *testing.T) {
	d := describe(t)
	r := newRig(t, &synthetic{flows: 3, members: 3}, fast)
	enough := errors.New("enough")
	var got []api.Sample
	err := r.client.Stream(context.Background(), func(s *api.Sample) error {
		if got = append(got, *s); len(got) == 3 {
			return enough
		}
		return nil
	})
	if err != enough {
		t.Fatal(err)
	}
	if got[2].Uptime <= got[0].Uptime || got[0].Groups[0].Members != 3 || got[0].Groups[0].Up != 1 || got[0].Totals.Flows != 3 {
		t.Errorf("%+v", got)
	}
	text := r.server.sampleText()
	if err := d.check("/components/schemas/Sample", string(text[len("data: "):])); err != nil {
		t.Error(err)
	}
	soon(t, "the reader has left", func() bool { return r.server.stream.count() == 0 })
}

// A reader that never reads is dropped, what it held is given back, and others do not notice.
func TestSlowReaderOfTheStream(t *testing.T) {
	r := newRig(t, &synthetic{members: 3}, fast)
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	soon(t, "it reads", func() bool { return r.server.stream.count() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	samples := 0
	err = r.client.Stream(ctx, func(*api.Sample) error {
		samples++
		if r.server.stream.count() == 1 { // only this one is left
			cancel()
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || samples == 0 {
		t.Fatalf("after %d samples: %v", samples, err)
	}
}

// There is a most of streams, and room again when one ends. The server's end ends them.
func TestManyStreams(t *testing.T) {
	r := newRig(t, &synthetic{}, fast)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, maxStreams)
	for range maxStreams {
		go func() { ended <- r.client.Stream(ctx, func(*api.Sample) error { return nil }) }()
	}
	soon(t, "all stream", func() bool { return r.server.stream.count() == maxStreams })
	if err := r.client.Stream(ctx, func(*api.Sample) error { return nil }); problem(err) != 503 {
		t.Errorf("one too many: %v", err)
	}
	done, stop := context.WithTimeout(context.Background(), eventually)
	defer stop()
	r.server.Close(done)
	for range maxStreams {
		if err := <-ended; err != io.EOF {
			t.Errorf("a stream ended with %v", err)
		}
	}
	soon(t, "all have left", func() bool { return r.server.stream.count() == 0 })
}
