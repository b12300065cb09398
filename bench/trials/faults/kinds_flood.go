//go:build linux

package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/proc"
)

// floodKinds are floods of packets.
var floodKinds = []*kind{
	{
		name: "syn-flood", part: "Floods", title: "A flood of SYNs", alone: true,
		what: "20,000 SYNs per second from forged addresses, for 4 s.",
		want: "Old flows do not notice, and new clients are served (the kernel's SYN cookies do most of that).",
		fault: func(w *testbed) error {
			f, err := newForger()
			if err != nil {
				return err
			}
			defer f.close()
			w.note("SYNs", float64(f.flood(20000, w.last(4*time.Second), unix.IPPROTO_TCP, syn(streamPort))))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.unnoticed(o, 3*time.Second, time.Second, 0.01)
			v.memory(o, 32)
		},
	},
	{
		name: "churn", part: "Floods", title: "Connections that are reset at once", alone: true,
		what: "Four clients connect and reset the connection, again and again, as fast as they can, for 4 s.",
		want: "Old flows do not notice, new clients are served, and nothing is left of it.",
		fault: func(w *testbed) error {
			end := time.Now().Add(w.last(4 * time.Second))
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for time.Now().Before(end) {
						if c, err := net.DialTimeout("tcp", relayAddr(streamPort), time.Second); err == nil {
							c.(*net.TCPConn).SetLinger(0)
							c.Close()
							w.note("connections", 1)
						}
					}
				})
			}
			all.Wait()
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.unnoticed(o, time.Second, time.Second, 0.01)
			v.memory(o, 32)
			// New datagram clients go on to come, and each has a flow of up to three descriptors for its idle time.
			v.measured(o.FilesAfter < o.FilesBefore+100+3*o.Dgm.total().Tried, "%d descriptors are left, before it were %d", o.FilesAfter, o.FilesBefore)
		},
	},
	{
		name: "spoofed", part: "Floods", title: "Datagrams from forged addresses", alone: true,
		what:  "60,000 datagrams per second, each from another forged address, for 4 s.",
		want:  "Old flows come first: they lose at most 0.5% of their datagrams, with a 99th percentile below 20 ms. At least nine of ten new clients that are real are served within 5 s.",
		needs: needs{Datagrams: true},
		fault: func(w *testbed) error {
			f, err := newForger()
			if err != nil {
				return err
			}
			defer f.close()
			w.note("forged datagrams", float64(f.flood(60000, w.last(4*time.Second), unix.IPPROTO_UDP, datagram(streamPort, make([]byte, 60)))))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.flowing(o, time.Second, 0.005)
			v.measured(o.Old.P99.D() < 20*time.Millisecond, "answers to old flows took %v (p99)", o.Old.P99.round())
			d := o.Dgm.During
			v.measured(float64(d.Served) >= 0.9*float64(d.Tried), "only %d of %d new datagram clients served", d.Served, d.Tried)
			v.memory(o, 128)
		},
	},
	{
		name: "amplified", part: "Floods", title: "Amplification", needs: needs{Datagrams: true, Few: true},
		what: "500 forged clients send one datagram of 200 bytes each, to which the upstream answers with 20 of 1,200 bytes. (nginx has `proxy_responses 1`, its strictest limit.)",
		want: "A client that has not shown that it gets answers is sent at most three times as many bytes as came from its address.",
		fault: func(w *testbed) error {
			return amplify(w)
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.flowing(o, time.Second, 0.005)
			ratio := o.Notes["bytes sent to forged addresses"] / o.Notes["bytes sent by forged addresses"]
			v.want(!(ratio > 3), "%.1f times as many bytes as came were sent to forged addresses", ratio)
		},
	},
}

// amplify sends from addresses of 10.99.0.0/16, which stand for those of victims: they are local here, so
// that what the relay sends to them can be counted, and nothing is ever sent back.
func amplify(w *testbed) error {
	if err := proc.IP("route add local 10.99.0.0/16 dev lo"); err != nil {
		return err
	}
	b := make([]byte, 200)
	var all sync.WaitGroup
	for i := range w.scaled(500) {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(fmt.Sprintf("10.99.%d.%d", 1+i/250, 1+i%250))}, net.UDPAddrFromAddrPort(relayAddrPort(streamPort)))
		if err != nil {
			return err
		}
		if _, err := c.Write(pattern.MakeDatagram(b, amplified+uint64(i), 1, pattern.Up)); err == nil {
			w.note("bytes sent by forged addresses", float64(len(b)))
		}
		all.Go(func() {
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(w.last(3 * time.Second)))
			answer := make([]byte, 2048)
			for {
				n, err := c.Read(answer)
				if err != nil {
					return
				}
				w.note("bytes sent to forged addresses", float64(n))
			}
		})
	}
	all.Wait()
	return nil
}
