package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Idle connections without a token, more than the listener takes at once, keep nobody
// out that has one; and they do not stay.
func TestStrangersKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serveMemory(t, "tcp")
		var idle []net.Conn
		for i := range 3 * maxConns / 2 {
			c, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if i%2 == 0 { // one request that needs no token, and then silence
				io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
					t.Fatalf("stranger %d: %+v, %v", i, resp, err)
				}
			}
			idle = append(idle, c)
		}
		resp, err := getMemory(l, "/v1/status")
		if err != nil {
			t.Fatal("a client with a token is kept out: ", err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("a client with a token gets %d", resp.StatusCode)
		}
		began, displaced := time.Now(), 0
		for _, c := range idle { // all but the last were closed for newer ones, and the last by their deadline
			c.SetDeadline(began.Add(anonymousTime + time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("an idle connection without a token stays open")
			}
			if time.Since(began) == 0 {
				displaced++
			}
		}
		if left := len(idle) - displaced; left > maxAnonymousConns || left < maxAnonymousConns-1 { // one made room for the client
			t.Errorf("%d strangers were left until their deadline", left)
		}
	})
}

// serveMemory starts a server whose clients are in the test's bubble, until the test ends. Its listener says that it is of that network.
func serveMemory(t *testing.T, network string) *testnet.Memory {
	t.Helper()
	s, l, served := New(&synthetic{level: "info"}, Config{Token: token, ReadToken: readToken, Events: new(Events)}), testnet.NewMemory(), make(chan error, 1)
	l.Network = network
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), eventually)
		defer cancel()
		s.Close(ctx)
		if err := <-served; err != nil {
			t.Error("Serve:", err)
		}
	})
	return l
}

// getMemory makes a request with a token, on a connection of its own.
func getMemory(l *testnet.Memory, path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }}}
	req, err := http.NewRequest("GET", "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = bearer(readToken)
	return client.Do(req)
}

// A connection that has shown a token is kept beyond what an anonymous one has, and no
// flood of maxAnonymous closes it.
func TestKnownConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serveMemory(t, "tcp")
		dial := func() net.Conn {
			c, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := dial()
		defer c.Close()
		in := bufio.NewReader(c)
		ask := func() {
			t.Helper()
			io.WriteString(c, "GET /v1/log HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+"\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != 200 {
				t.Fatalf("status %d", resp.StatusCode)
			}
		}
		ask()
		time.Sleep(anonymousTime + time.Second)
		for range 2 * maxAnonymousConns {
			defer dial().Close()
		}
		ask()
	})
}

// The places of connections that have shown a token come back when they are closed.
func TestPlacesComeBack(t *testing.T) {
	r := newRig(t, &synthetic{})
	for range 2 {
		var all []net.Conn
		for i := range maxConns {
			c, err := net.Dial("tcp", r.tcp)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(testwait.Patience))
			if !testwait.For(func() bool {
				io.WriteString(c, "GET /v1/log HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+"\r\n\r\n")
				var resp *http.Response
				resp, err = http.ReadResponse(bufio.NewReader(c), nil)
				if err == nil && resp.StatusCode == 200 {
					return true
				}
				c.Close() // those of the round before may not be closed yet
				again, derr := net.Dial("tcp", r.tcp)
				if derr != nil {
					t.Fatal(derr)
				}
				c = again
				c.SetDeadline(time.Now().Add(testwait.Patience))
				return false
			}) {
				t.Fatalf("connection %d: %v", i, err)
			}
			all = append(all, c)
		}
		for _, c := range all {
			c.Close()
		}
	}
}

// A second profile of the CPU, or a second trace, is refused as everything else is: with a problem.
func TestProfilesOneAtATime(t *testing.T) {
	r := newRig(t, &synthetic{})
	for name, running := range map[string]*sync.Mutex{"profile": &r.server.profiles, "trace": &r.server.traces} {
		first := make(chan answer)
		go func() { first <- r.ask("GET", "/debug/pprof/"+name+"?seconds=1", "") }()
		testwait.Until(t, "it begins", func() bool {
			free := running.TryLock()
			if free {
				running.Unlock()
			}
			return !free
		})
		if got := r.ask("GET", "/debug/pprof/"+name+"?seconds=1", ""); got.status != 409 || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("a second %s: %d %v %.100s", name, got.status, got.header, got.body)
		}
		if got := <-first; got.status != 200 {
			t.Errorf("the first %s: %d", name, got.status)
		}
	}
}
