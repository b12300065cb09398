package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers)
}

func TestStream(t *testing.T) {
	d := describe(t)
	r := newRig(t, &synthetic{flows: 3, members: 3})
	enough := errors.New("enough")
	var got []api.Sample
	err := r.client.Stream(context.Background(), func(s *api.Sample) error {
		if got = append(got, *s); len(got) == 2 {
			return enough
		}
		return nil
	})
	if err != enough {
		t.Fatal(err)
	}
	if got[1].Uptime <= got[0].Uptime || got[0].Groups[0].Members != 3 || got[0].Groups[0].Up != 1 || got[0].Totals.Flows != 3 {
		t.Errorf("%+v", got)
	}
	text := r.server.sampleText()
	if err := d.check("/components/schemas/Sample", string(text[len("data: "):])); err != nil {
		t.Error(err)
	}
	testwait.Until(t, "the reader has left", func() bool { return r.server.stream.count() == 0 })
}

// The answer to HEAD ends, and the connection is free for the next request.
func TestHeadOfTheStream(t *testing.T) {
	r := newRig(t, &synthetic{})
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(eventually))
	io.WriteString(conn, "HEAD /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	text, err := io.ReadAll(conn)
	if n := strings.Count(string(text), "HTTP/1.1 200 OK"); n != 2 || err != nil || r.server.stream.count() != 0 {
		t.Errorf("%d answers, %v: %s", n, err, text)
	}
}

// A reader that never reads is dropped, what it held is given back, and the next one is served.
func TestSlowReaderOfTheStream(t *testing.T) {
	r := newRig(t, &synthetic{members: 3}, func(s *Server) { s.stream.every = time.Millisecond })
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "it reads", func() bool { return r.server.stream.count() == 1 })
	testwait.Until(t, "it is dropped", func() bool { return r.server.stream.count() == 0 })
	enough := errors.New("enough")
	if err := r.client.Stream(context.Background(), func(*api.Sample) error { return enough }); err != enough {
		t.Errorf("the next one: %v", err)
	}
}

// There is a most of streams, and room again when one ends. The server's end ends them.
func TestManyStreams(t *testing.T) {
	r := newRig(t, &synthetic{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, maxStreams)
	for range maxStreams {
		go func() { ended <- r.client.Stream(ctx, func(*api.Sample) error { return nil }) }()
	}
	testwait.Until(t, "all stream", func() bool { return r.server.stream.count() == maxStreams })
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
	testwait.Until(t, "all have left", func() bool { return r.server.stream.count() == 0 })
}

// A stream goes on after the times in which a request must be read, and an anonymous connection must end, over the
// Unix socket and over TCP.
func TestStreamOutlivesReadTimeout(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := serveMemory(t, network)
				resp, err := getMemory(l, "/v1/stream")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				in, start := bufio.NewReader(resp.Body), time.Now()
				for time.Since(start) < 3*max(readTime, anonymousTime) {
					if _, err := in.ReadString('\n'); err != nil {
						t.Fatalf("%v after %v", err, time.Since(start))
					}
				}
			})
		})
	}
}
