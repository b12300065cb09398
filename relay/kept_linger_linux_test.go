package relay

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// A listener that somebody else has bound outlives an engine with Keep, and its options do, too. The flows
// of an engine without Keep end as well as ever: what their clients have not read yet is not destroyed.
func TestListenerAfterEngineWithKeep(t *testing.T) {
	testnet.CheckLeaks(t)
	bound, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	s := newServer(t, "tcp4")
	done := make(chan Record, 10)
	listen := func(cfg Config) (*Engine, *Listener) {
		t.Helper()
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f, err := bound.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		again, err := net.FileListener(f)
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.ListenOn(again, ListenConfig{Hooks: Hooks{
			Upstream: func(*Flow, int) *Addr { return s.addr },
			Done:     func(r *Record) { done <- *r },
		}})
		if err != nil {
			t.Fatal(err)
		}
		return e, l
	}
	first, _ := listen(Config{Loops: 1, Keep: &hold.Keep{Holder: nobody{}}})
	first.Close()
	before := testnet.Dial(t, bound.Addr()) // waits in the queue
	second, _ := listen(Config{Loops: 1})
	defer second.Close()
	for _, c := range []net.Conn{before, testnet.Dial(t, bound.Addr())} {
		const size = 400 << 10 // more than the client's buffer, less than with that of the engine
		if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		b := s.accept(t)
		go func() {
			b.Write(make([]byte, size))
			b.Close()
		}()
		closeWrite(t, c)
		if r := <-done; r.Cause != CauseEnd {
			t.Errorf("%v", r.Cause)
		}
		if n, err := io.Copy(io.Discard, c); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}

// An engine that has handed over and lingers keeps none of the sockets that flows of a closing port got for themselves: a copy of
// one would receive what the next process should.
func TestLingersWithoutOwnSockets(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newMemoryHolder(t)
	e, err := New(lingerConfig(h, nil))
	if err != nil {
		t.Fatal(err)
	}
	up := gramEcho(t, "udp4")
	l, err := e.Listen(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return up }}})
	if err != nil {
		t.Fatal(err)
	}
	askGram(t, packetSocket(t, "udp4"), l.Addr(), "hello")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the flow has a socket of its own", func() bool { return e.datagrams.own.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.HandOver(ctx); err != nil {
		t.Fatal(err)
	}
	flows := 0
	for _, d := range e.datagrams.all { // whose loops have ended
		d.slab.Each(func(f *datagramFlow) {
			flows++
			if _, err := sys.FamilyOf(sys.Linux{}, int(f.own)); f.own < 0 || err != sys.EBADF {
				t.Errorf("the flow's own socket is %d, and asked for its family it says %v", f.own, err)
			}
		})
	}
	if flows != 1 {
		t.Errorf("%d flows were handed over", flows)
	}
	e.Close()
	for _, s := range e.streams.all {
		s.keep.ledger.Close()
	}
	for key := range h.held {
		h.Drop(key)
	}
}
