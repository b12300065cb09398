package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/quichello"
)

// fileServer is a server of HTTP/3 with a page and a file of its own. The file comes whole with ?whole, and otherwise stops in the middle until
// the rest is let go.
type fileServer struct {
	name        string
	at          net.Addr
	key         string // what the browser is told of its certificate, so that it trusts that
	rest        chan struct{}
	connections atomic.Int32

	mu     sync.Mutex
	hello  quichello.Assembler
	helloN int // datagrams of the first connection's ClientHello; 0: it has not come
}

func newFileServer(t *testing.T, name string) *fileServer {
	t.Helper()
	cert := testcerts.Authority(t, "authority of "+name).Issue(t, name)
	key := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	s := &fileServer{name: name, key: base64.StdEncoding.EncodeToString(key[:]), rest: make(chan struct{})}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.at = socket.LocalAddr()
	server := &http3.Server{
		Handler:    s,
		TLSConfig:  http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{cert.TLS()}}),
		QUICConfig: &quicgo.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: quicIdle},
		ConnContext: func(ctx context.Context, _ *quicgo.Conn) context.Context {
			s.connections.Add(1)
			return ctx
		},
	}
	var all sync.WaitGroup
	all.Go(func() { server.Serve(helloReader{socket, s}) })
	t.Cleanup(func() {
		server.Close()
		socket.Close()
		all.Wait()
	})
	return s
}

// file returns the file of a name, each line of which has the name and its number.
func (s *fileServer) file() string {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "%s %06d\n", s.name, i)
	}
	return b.String()
}

func (s *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Access-Control-Allow-Origin", "*") // the page is that of one of the names
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><title>%s</title>", s.name)
	case "/file":
		file := s.file()
		if r.URL.RawQuery == "whole" {
			fmt.Fprint(w, file)
			return
		}
		fmt.Fprint(w, file[:len(file)/2])
		w.(http.Flusher).Flush()
		select {
		case <-s.rest:
			fmt.Fprint(w, file[len(file)/2:])
		case <-r.Context().Done():
		}
	default:
		http.NotFound(w, r)
	}
}

// helloReader is the socket of a server, and counts the datagrams that a ClientHello takes.
type helloReader struct {
	net.PacketConn
	s *fileServer
}

func (c helloReader) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	if err == nil {
		c.s.mu.Lock()
		if c.s.helloN == 0 {
			if _, err := c.s.hello.Add(b[:n]); err == nil {
				c.s.helloN = c.s.hello.Datagrams()
			}
		}
		c.s.mu.Unlock()
	}
	return n, from, err
}

// Chromium, whose ClientHello takes two datagrams, gets the files of two names by one port, each from its server, and its connections go on when
// the worker is killed in the middle of a file.
func TestQUICChromium(t *testing.T) {
	t.Parallel()
	one, two := newFileServer(t, "one.test"), newFileServer(t, "two.test")
	servers := []*fileServer{one, two}
	k := runKept(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    routes:
      - {name: one, sni: one.test, to: "udp://{0}"}
      - {name: two, sni: two.test, to: "udp://{1}"}
`, one.at, two.at)
	port := k.at("quic").(*net.UDPAddr).Port
	ctx := testbrowser.Start(t,
		chromedp.Flag("origin-to-force-quic-on", fmt.Sprintf("one.test:%d,two.test:%d", port, port)),
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
		chromedp.Flag("ignore-certificate-errors-spki-list", one.key+","+two.key))
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	again := func(what string, do func() error) { // if the browser's time for a handshake is over, which nobody can set
		t.Helper()
		var err error
		if !testwait.For(func() bool { err = do(); return err == nil }) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	again("a page", func() error { return chromedp.Do(ctx, chromedp.Navigate(fmt.Sprintf("https://one.test:%d/", port))) })
	text := func(expression string) string {
		t.Helper()
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return got
	}
	isFile := func(s *fileServer, got string) {
		t.Helper()
		if want := s.file(); got != want {
			t.Errorf("%s: %d bytes that begin with %.20q, want its %d", s.name, len(got), got, len(want))
		}
	}
	for _, s := range servers {
		got := ""
		again("the file of "+s.name, func() (err error) {
			get := fmt.Sprintf(`fetch("https://%s:%d/file?whole").then((a) => a.text())`, s.name, port)
			got, err = chromedp.Run(ctx, chromedp.Evaluate[string](get, chromedp.EvalAwaitPromise))
			return err
		})
		isFile(s, got)
		s.mu.Lock()
		n := s.helloN
		s.mu.Unlock()
		if n < 2 {
			t.Errorf("%s: a ClientHello in %d datagrams, want 2", s.name, n)
		}
	}
	k.allKept()
	before := [2]int32{one.connections.Load(), two.connections.Load()}
	for i, s := range servers {
		text(fmt.Sprintf(`window.files ??= [], window.got ??= [0, 0], files[%d] = (async () => {
			const from = (await fetch("https://%s:%d/file")).body.pipeThrough(new TextDecoderStream()).getReader()
			for (let all = "";;) {
				const {done, value} = await from.read()
				if (done) return all
				all += value
				got[%[1]d] = all.length
			}
		})(), ""`, i, s.name, port))
	}
	for i, s := range servers {
		testwait.Until(t, "half the file of "+s.name, func() bool { return text(fmt.Sprintf("String(got[%d])", i)) == fmt.Sprint(len(s.file())/2) })
	}
	k.crash()
	for i, s := range servers {
		close(s.rest)
		isFile(s, text(fmt.Sprintf("files[%d]", i)))
	}
	if after := [2]int32{one.connections.Load(), two.connections.Load()}; after != before {
		t.Errorf("there were %d connections, and %d at the end", before, after)
	}
}
