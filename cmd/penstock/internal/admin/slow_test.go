package admin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// slowClients is more than there are places for connections.
const slowClients = maxConns + maxConns/2

// patient makes the server wait for slow clients as long as it can.
func patient(s *Server) { s.http.ReadHeaderTimeout, s.http.ReadTimeout = time.Hour, time.Hour }

// slowAfter sets for how long a request may make no progress.
func slowAfter(d time.Duration) func(*Server) {
	return func(s *Server) { s.slowTime, s.listings.slowTime, s.scrapes.turns.slowTime = d, d, d }
}

// connect opens a connection that is closed at the end of the test, and writes to it.
func connect(t *testing.T, network, at, text string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(eventually))
	io.WriteString(c, text) // fails if it was displaced already
	return c
}

// mustAnswer asks for the status on a connection of its own.
func mustAnswer(t *testing.T, address, token string) {
	t.Helper()
	c, err := api.NewClient(address, token)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	if s, err := c.Status(ctx); err != nil || s.Version == "" {
		t.Errorf("%s: %+v, %v", address, s, err)
	}
}

// Clients that send half of a request, more than the listener takes at once, keep no operator out:
// neither on the Unix socket, nor on TCP after a request with a token.
func TestHalfRequestsKeepNobodyOut(t *testing.T) {
	const half = "GET /v1/status HTTP/1.1\r\nHost: local"
	r := newRig(t, &synthetic{}, patient)
	for range slowClients {
		connect(t, "unix", r.path, half)
	}
	mustAnswer(t, "unix://"+r.path, "")
	for i := range slowClients {
		c := connect(t, "tcp", r.tcp, "GET /v1/log HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+readToken+"\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("client %d: %+v, %v", i, resp, err)
		}
		io.WriteString(c, half)
	}
	mustAnswer(t, "tcp://"+r.tcp, readToken)
}

// A connection that waits for its next request is displaced before one whose request is being answered.
func TestRequestsBeingServedStay(t *testing.T) {
	hold := make(chan struct{})
	r := newRig(t, &synthetic{flows: 1, walked: func() { <-hold }}, patient, slowAfter(time.Hour))
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.Flows(context.Background(), api.Filter{}, api.Page{Limit: 1})
		answered <- err
	}()
	testwait.Until(t, "it is being answered", func() bool { return len(r.server.listings.slots) == 1 })
	for range slowClients {
		connect(t, "unix", r.path, "GET")
	}
	mustAnswer(t, "unix://"+r.path, "")
	close(hold)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// Clients that do not read their answers, more than the listener takes at once, keep no operator out, and do not
// keep the listings of flows, nor the metrics, for themselves.
func TestSlowReadersKeepNobodyOut(t *testing.T) {
	r := newRig(t, &synthetic{flows: 200_000, members: 1000}, patient, slowAfter(5*time.Millisecond))
	for i := range slowClients {
		path := "/v1/flows"
		if i < 8 {
			path = "/metrics"
		}
		connect(t, "unix", r.path, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	mustAnswer(t, "unix://"+r.path, "")
	// A reader that has no CPU for a while looks slow here, and asks again.
	testwait.Until(t, "a listing is read", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		l, err := r.client.Flows(ctx, api.Filter{}, api.Page{Limit: 1})
		return err == nil && len(l.Flows) == 1
	})
	testwait.Until(t, "the metrics are read", func() bool {
		resp, err := r.unix.Get("http://localhost/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == 200
	})
}

// Listeners of the stream that do not read keep no operator out either.
func TestSlowStreamsKeepNobodyOut(t *testing.T) {
	r := newRig(t, &synthetic{members: 3}, patient, slowAfter(10*time.Millisecond), func(s *Server) { s.stream.every = time.Millisecond })
	for range slowClients {
		connect(t, "unix", r.path, "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	mustAnswer(t, "unix://"+r.path, "")
	enough := io.EOF
	testwait.Until(t, "a stream has room", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		return r.client.Stream(ctx, func(*api.Sample) error { return enough }) == enough
	})
}

// The listener's end does not wait for a place.
func TestCloseWhileAllPlacesAreTaken(t *testing.T) {
	r := newRig(t, &synthetic{flows: 200_000}, patient, slowAfter(time.Hour))
	for range maxConns + 1 {
		connect(t, "unix", r.path, "GET /v1/flows HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	testwait.Until(t, "listings wait", func() bool { return len(r.server.listings.slots) == maxListings })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.server.Close(ctx)
}
