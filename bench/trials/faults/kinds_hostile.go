//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/proc"
)

// hello is the ClientHello of crypto/tls for a name.
func hello(name string) []byte { return certs.Hello(&tls.Config{ServerName: name}) }

// nobody expects that nothing of what was no flow reached a member.
func nobody(o *outcome, v *verdict) {
	v.want(o.Notes["garbage at members"] == 0, "%.0f connections with garbage reached an upstream", o.Notes["garbage at members"])
}

// crowdKind is a kind in which clients at a port of their own do something, and others do not notice.
func crowdKind(k kind, port, n int, act func(w *testbed, c net.Conn), more func(o *outcome, v *verdict)) *kind {
	k.part = "Hostile clients"
	k.fault = func(w *testbed) error {
		end := time.Now().Add(w.last(5 * time.Second))
		c := join(w, w.scaled(n), port, "", func(c net.Conn) { act(w, c) })
		time.Sleep(time.Until(end))
		c.leave()
		return nil
	}
	k.expect = func(o *outcome, v *verdict) {
		v.carries(o)
		nobody(o, v)
		v.served(o, 500*time.Millisecond)
		v.flowing(o, time.Second, 0.005)
		v.memory(o, 32)
		if more != nil {
			more(o, v)
		}
	}
	return &k
}

// ended waits for the relay to end a connection, and notes whether it does while the fault lasts.
func ended(w *testbed, c net.Conn) {
	var b [64]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			break
		}
	}
	if w.phase() == during {
		w.note("ended by the relay", 1)
	}
}

// allEnded expects that the relay has ended what led to nothing.
func allEnded(o *outcome, v *verdict) {
	n := o.Notes["of a crowd, connected"]
	v.measured(o.Notes["ended by the relay"] >= 0.99*n, "only %.0f of %.0f hostile clients ended within 5 s", o.Notes["ended by the relay"], n)
}

var hostileKinds = []*kind{
	crowdKind(kind{
		name: "slow-proxy", title: "PROXY headers, one byte at a time", needs: needs{Proxy: true},
		what: "500 clients send a PROXY header, one byte every 300 ms. The relay waits 2 s for a header.",
		want: "They are ended when their time is over, and nobody else notices.",
	}, proxyPort, 500, func(w *testbed, c net.Conn) {
		go trickler([]byte("PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\n"), 300*time.Millisecond)(c)
		ended(w, c)
	}, allEnded),
	crowdKind(kind{
		name: "garbage-proxy", short: true, title: "Garbage instead of PROXY headers", needs: needs{Proxy: true},
		what: "1,000 clients send random bytes, or half of a header and then random bytes, where a PROXY header is expected.",
		want: "They are ended, none of their bytes reaches an upstream, and nobody else notices.",
	}, proxyPort, 1000, func(w *testbed, c net.Conn) {
		b := append([]byte("PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\n")[:rand.IntN(40)], random(400)...)
		c.Write(b)
		ended(w, c)
	}, allEnded),
	crowdKind(kind{
		name: "slow-hello", title: "ClientHellos, one byte at a time", needs: needs{SNI: true},
		what: "500 clients send a ClientHello, one byte every 300 ms, to a listener that routes by server name. The relay waits 2 s for it.",
		want: "They are ended when their time is over, and nobody else notices.",
	}, sniPort, 500, func(w *testbed, c net.Conn) {
		go trickler(hello("www.example.com"), 300*time.Millisecond)(c)
		ended(w, c)
	}, allEnded),
	crowdKind(kind{
		name: "garbage-hello", title: "Garbage instead of ClientHellos", needs: needs{SNI: true},
		what: "1,000 clients send random bytes, or a ClientHello with random bytes in its middle, to a listener that routes by server name.",
		want: "They are ended within the 2 s that the relay waits, none of their bytes reaches an upstream, and nobody else notices.",
	}, sniPort, 1000, func(w *testbed, c net.Conn) {
		b := random(300)
		if rand.IntN(2) == 0 {
			h := hello("www.example.net")
			copy(h[5+rand.IntN(len(h)/2):], random(40))
			b = h
		}
		c.Write(b)
		ended(w, c)
	}, allEnded),
	{
		name: "half-open", part: "Hostile clients", title: "Clients that connect and vanish",
		what: "1,000 clients connect, say nothing, and after a second no packet comes from their address any more.",
		want: "Nobody else notices, and the relay spends little memory on them.",
		fault: func(w *testbed) error {
			const from = "10.77.2.1"
			if err := proc.IP("addr add " + from + "/32 dev lo"); err != nil {
				return err
			}
			c := join(w, w.scaled(1000), streamPort, from, func(net.Conn) {})
			time.Sleep(w.last(time.Second))
			err := proc.IP("addr del " + from + "/32 dev lo")
			time.Sleep(w.last(4 * time.Second))
			c.leave()
			return err
		},
		expect: unnoticedWithin(32),
	},
	{
		name: "admin", part: "Hostile clients", title: "The admin address flooded", needs: needs{Admin: true},
		what: "16 clients ask for all metrics or statistics again and again, and 200 send half a request and stay. (nginx: its stub_status page.)",
		want: "Flows do not notice.",
		fault: func(w *testbed) error {
			end := time.Now().Add(w.last(4 * time.Second))
			for range 200 {
				if c, err := w.dialAdmin(); err == nil {
					defer c.Close()
					c.Write([]byte("GET /met"))
				}
			}
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for time.Now().Before(end) {
						if w.askAdmin() == nil {
							w.note("requests answered", 1)
						} else {
							w.note("requests failed", 1)
							time.Sleep(10 * time.Millisecond)
						}
					}
				})
			}
			all.Wait()
			return nil
		},
		expect: unnoticedWithin(64),
	},
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// dialAdmin connects to what the relay has for its operators.
func (w *testbed) dialAdmin() (net.Conn, error) {
	switch w.r {
	case penstock:
		return net.DialTimeout("unix", filepath.Join(w.dir, "admin"), time.Second)
	case haproxy:
		return net.DialTimeout("unix", filepath.Join(w.dir, "stats.sock"), time.Second)
	}
	return net.DialTimeout("tcp", relayAddr(adminPort), time.Second)
}

// askAdmin makes one request of an operator.
func (w *testbed) askAdmin() error {
	if w.r == haproxy {
		_, err := w.stats("show stat")
		return err
	}
	if w.r == penstock {
		_, err := w.daemon().Get("/metrics")
		return err
	}
	resp, err := http.Get("http://" + relayAddr(adminPort) + "/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}
