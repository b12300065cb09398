//go:build linux

package main

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/dgram"
)

// A reply counts if it is its client's own, and has all the bytes that were sent; any other is wrong.
func TestReplies(t *testing.T) {
	cs := &clients{size: 64}
	now := time.Now()
	for range 2 {
		c := cs.all
		cs.add(old)
		cs.all[len(c)].sent, cs.all[len(c)].took = []time.Time{now}, []time.Duration{0}
	}
	b, want := make([]byte, 64), make([]byte, 64)
	fill(b, 1, 0)
	cs.take(b, want, cs.all[0].address(), now.Add(time.Second)) // at another client
	b[63]++
	cs.take(b, want, cs.all[1].address(), now.Add(time.Second)) // another byte
	cs.take(b[:60], want, cs.all[1].address(), now.Add(time.Second))
	fill(b, 1, 1)
	cs.take(b, want, cs.all[1].address(), now.Add(time.Second)) // never sent
	if cs.wrong != 4 || cs.all[0].answered() || cs.all[1].answered() {
		t.Errorf("%d wrong replies, want 4; answered: %v, %v", cs.wrong, cs.all[0].answered(), cs.all[1].answered())
	}
	forged, forgery := netip.AddrFrom4([4]byte{10, 1, 7, 150}), make([]byte, 64)
	cs.take(forgery, want, forged, now) // its own
	if cs.wrong != 4 {
		t.Errorf("%d wrong replies, with the one that a forged address got", cs.wrong)
	}
	cs.take(b, want, forged, now)                    // a client's
	cs.take(forgery, want, cs.all[0].address(), now) // at a client
	if cs.wrong -= 2; cs.wrong != 4 {
		t.Errorf("%d wrong replies, want 2 more", cs.wrong)
	}
	fill(b, 1, 0)
	cs.take(b, want, cs.all[1].address(), now.Add(time.Second))
	if cs.wrong != 4 || cs.all[1].took[0] != time.Second {
		t.Errorf("%d wrong replies; the right one took %v", cs.wrong, cs.all[1].took[0])
	}
}

// Replies that come in one message, because the kernel has merged them (UDP_GRO), are each their client's.
func TestMergedReplies(t *testing.T) {
	cs := &clients{size: 64}
	now := time.Now()
	c := cs.all[cs.add(old)]
	c.sent, c.took = []time.Time{now, now}, make([]time.Duration, 2)
	m := dgram.Message{Buf: make([]byte, 128), N: 128, Segment: 64, Local: c.address()}
	fill(m.Buf, 0, 0)
	fill(m.Buf[64:], 0, 1)
	cs.received(&m, make([]byte, 64), now.Add(time.Second))
	if cs.wrong != 0 || c.took[0] != time.Second || c.took[1] != time.Second {
		t.Errorf("%d wrong replies, which took %v", cs.wrong, c.took)
	}
}

// A flood comes from none of the honest clients' addresses, and only that from known networks from their
// networks.
func TestSources(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range kinds {
		for range 100_000 {
			ip := k.source(r)
			if within := ip>>24 == 10; within != (k.name == "known") {
				t.Fatalf("%s: %#x", k.name, ip)
			}
			if ip&0xff < 128 && k.name == "known" {
				t.Fatalf("%s: %#x is an honest client's", k.name, ip)
			}
		}
	}
}
