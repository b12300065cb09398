//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// A link is how one party reaches etcd: a relay, or whoever publishes. It can be cut, slow, or lose answers, each for a while.
type link struct {
	to     string // etcd's URL
	url    string // the link's own
	server *http.Server
	client *http.Client

	mu     sync.Mutex
	random *rand.Rand
	fault  string // one of linkFaults; "": none
	until  time.Time
	broken chan struct{} // closed when it is cut
	held   int           // writes that have not reached etcd yet, whoever still waits for them
}

// linkFaults are what can be wrong with a link.
var linkFaults = []string{
	"cut",  // nobody is there, and what was open is gone
	"slow", // each request and each part of an answer takes up to a second more
	"disk", // writes take seconds, as they do if etcd's disk is slow, and are made even if nobody waits for them any more
	"lost", // of half of the writes the answer is lost
}

// longestWrite is how long the fault disk holds a write at the most.
const longestWrite = 12 * time.Second

func newLink(to string, seed, number uint64) (*link, error) {
	l := &link{to: to, random: rand.New(rand.NewPCG(seed, number)), broken: make(chan struct{})}
	l.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.url = "http://" + at.Addr().String()
	l.server = &http.Server{Handler: l}
	go l.server.Serve(at)
	return l, nil
}

func (l *link) close() {
	l.server.Close()
	l.client.CloseIdleConnections()
}

// fail makes something wrong for a while.
func (l *link) fail(fault string, long time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.until = fault, time.Now().Add(long)
	if fault == "cut" {
		close(l.broken)
		l.broken = make(chan struct{})
	}
}

// good reports whether nothing is wrong with it, and nothing that was wrong has an effect any more.
func (l *link) good() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().After(l.until) && l.held == 0
}

// now returns what is wrong, a channel that is closed when the link is cut, and two numbers below 1 drawn at random.
func (l *link) now() (fault string, broken chan struct{}, one, other float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fault = l.fault; time.Now().After(l.until) {
		fault = ""
	}
	return fault, l.broken, l.random.Float64(), l.random.Float64()
}

func (l *link) hold(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
}

// isWrite reports whether a request changes something.
func isWrite(path string, body []byte) bool {
	switch path {
	case "/v3/kv/put", "/v3/kv/deleterange", "/v3/lease/grant", "/v3/lease/revoke":
		return true
	}
	return path == "/v3/kv/txn" && (bytes.Contains(body, []byte("request_put")) || bytes.Contains(body, []byte("request_delete_range")))
}

// An answer is etcd's to one request.
type answer struct {
	status int
	kind   string
	text   []byte
	err    error
}

func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // none of them is long
	fault, broken, one, other := l.now()
	if err != nil || fault == "cut" {
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-broken:
			cancel()
		case <-ctx.Done():
		}
	}()
	path, header, write := r.URL.Path, r.Header.Clone(), isWrite(r.URL.Path, body)
	if path == "/v3/watch" {
		if l.stream(ctx, w, path, header, body) != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	var before time.Duration
	switch {
	case fault == "slow":
		before = time.Duration(one * float64(time.Second))
	case fault == "disk" && write:
		before = time.Duration(one * float64(longestWrite))
	}
	l.hold(1)
	answers := make(chan answer, 1)
	go func() {
		defer l.hold(-1)
		time.Sleep(before)
		to := ctx
		if write {
			to = context.WithoutCancel(ctx) // it is on its way, whoever has left
		}
		answers <- l.ask(to, path, header, body)
	}()
	select {
	case a := <-answers:
		if a.err != nil || fault == "lost" && write && other < 0.5 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", a.kind)
		w.WriteHeader(a.status)
		w.Write(a.text)
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// send sends a request to etcd.
func (l *link) send(ctx context.Context, path string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.to+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	return l.client.Do(r)
}

func (l *link) ask(ctx context.Context, path string, header http.Header, body []byte) (a answer) {
	res, err := l.send(ctx, path, header, body)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	a.status, a.kind = res.StatusCode, res.Header.Get("Content-Type")
	a.text, a.err = io.ReadAll(res.Body)
	return a
}

// stream passes a watch on.
func (l *link) stream(ctx context.Context, w http.ResponseWriter, path string, header http.Header, body []byte) error {
	res, err := l.send(ctx, path, header, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
	w.WriteHeader(res.StatusCode)
	b := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(b)
		if fault, _, one, _ := l.now(); fault == "slow" && n > 0 {
			select {
			case <-time.After(time.Duration(one * float64(time.Second))):
			case <-ctx.Done():
			}
		}
		if _, werr := w.Write(b[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		w.(http.Flusher).Flush()
	}
}

func (l *link) String() string {
	fault, _, _, _ := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%q, %d writes held", fault, l.held)
}
