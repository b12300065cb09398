package hooks

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/quichello"
)

// Of two connections that match, a short header is the verified one's, then the older one's, and otherwise that of which more matches: always,
// if that is so little that it may be chance.
func TestQUICBefore(t *testing.T) {
	conn := func(verified bool, age time.Duration) *quicConn {
		c := &quicConn{}
		c.verified, c.began = verified, quicEpoch.Add(-age)
		return c
	}
	for i, row := range []struct {
		c, o *quicConn
		n, m int
		kind quichello.Kind
		want bool
	}{
		{conn(true, 0), conn(false, time.Hour), 8, 9, quichello.Short, true},
		{conn(false, time.Hour), conn(true, 0), 9, 8, quichello.Short, false},
		{conn(true, time.Hour), conn(true, 0), 8, 9, quichello.Short, true},
		{conn(true, time.Hour), conn(false, 0), 2, 3, quichello.Short, false},
		{conn(false, 0), conn(true, time.Hour), 3, 2, quichello.Short, true},
		{conn(true, time.Hour), conn(false, 0), 8, 9, quichello.Handshake, false},
		{conn(false, 0), conn(true, time.Hour), 9, 8, quichello.Handshake, true},
	} {
		if got := row.c.before(row.o, row.n, row.m, row.kind); got != row.want {
			t.Errorf("row %d: %t", i, got)
		}
	}
}

// How much is known of IDs that are tried is bounded: those that come least often, or have not come for a minute, are forgotten first.
func TestQUICGuessesAreBounded(t *testing.T) {
	w := newQUICWorld(t, 1)
	w.begin(time.Second, false)
	w.begin(time.Second, false)
	often, old := w.newID(), w.newID()
	for range 50 {
		w.deliver(old)
	}
	w.now = w.now.Add(guessTime + time.Second)
	for range 5 {
		w.deliver(often)
	}
	for i := range 3 * maxGuesses {
		w.deliver(w.newID())
		if n := len(w.at.guesses); n > maxGuesses {
			t.Fatalf("%d IDs are known after %d", n, i+3)
		}
	}
	if !w.at.tries(often.Bytes()) || w.at.tries(old.Bytes()) {
		t.Errorf("known are the one that came often: %t, and the one that has not come for long: %t", w.at.tries(often.Bytes()), w.at.tries(old.Bytes()))
	}
}

// The ID of a long header has a length, and what is longer or shorter is another ID.
func TestQUICLongHeaderMatchesWhole(t *testing.T) {
	known, _ := quicid.NewID([]byte("server01"))
	c := &quicConn{shown: known}
	for text, want := range map[string]int{"server01": 8, "server01x": 0, "server0": 0} {
		if n, _ := c.matches(&quichello.Header{Kind: quichello.Handshake, DestID: []byte(text)}); n != want {
			t.Errorf("%q matches %d bytes, want %d", text, n, want)
		}
	}
}

// quicPair is an address with two verified connections, of which a has sent last: an ID that nobody knows is tried with that first.
func quicPair(t *testing.T) (w *quicWorld, a, b *quicOwner) {
	w = newQUICWorld(t, 1)
	b, a = w.begin(time.Second, false), w.begin(time.Second, false)
	for _, o := range []*quicOwner{b, a} {
		o.conn.verified = true
		w.now = w.now.Add(time.Millisecond)
		w.wants(o.id, o)
	}
	return w, a, b
}

// wants delivers a datagram, and fails the test unless it is taken for one of a connection.
func (w *quicWorld) wants(id quicid.ID, want *quicOwner) {
	w.t.Helper()
	if got := w.ownerOf(w.deliver(id)); got != want {
		w.t.Fatalf("at %v, %v is of connection %d, want %d", w.now.Sub(quicEpoch), id, w.index(got), w.index(want))
	}
}

// A datagram with the ID before, which the network has delivered late, does not say that a connection goes on with that.
func TestQUICLateDatagram(t *testing.T) {
	w, a, b := quicPair(t)
	id := w.newID()
	w.wants(id, a)
	w.now = w.now.Add(lateTime)
	w.wants(a.id, a)
	w.wants(id, a)
	w.now = w.now.Add(time.Millisecond)
	w.wants(a.id, a)
	w.wants(id, b)

	c, first, second := &quicConn{}, w.newID(), w.newID()
	c.use(first, w.now)
	c.use(second, w.now)
	if c.use(first, w.now.Add(lateTime)); c.shares {
		t.Error("a late datagram makes several connections of one")
	}
	c.use(second, w.now.Add(lateTime))
	if c.use(first, w.now.Add(3*lateTime)); !c.shares {
		t.Error("a flow whose client goes back to an ID is one connection")
	}
}

// A server is silent if it has answered none of several datagrams for a second: not as soon as they come, nor because one is lost.
func TestQUICServerIsSilent(t *testing.T) {
	w, a, b := quicPair(t)
	id := w.newID()
	for range 10 * silentCount {
		w.wants(id, a)
	}
	w.now = w.now.Add(silentTime - 1)
	w.wants(id, a)
	w.now = w.now.Add(1)
	w.wants(id, b)

	w, a, b = quicPair(t)
	id = w.newID()
	for range silentCount {
		w.wants(id, a)
		w.now = w.now.Add(2 * silentTime)
	}
	w.wants(id, b)
}

// An ID that was tried becomes a connection's for good only if everything says so: each test below lacks one thing, and the ID can still be
// found to be the other connection's.
func TestQUICSure(t *testing.T) {
	try := func(w *quicWorld, id quicid.ID, with *quicOwner, during time.Duration, meanwhile func()) {
		t.Helper()
		for range during / (500 * time.Millisecond) {
			w.wants(id, with)
			w.now = w.now.Add(500 * time.Millisecond)
			meanwhile()
		}
	}
	t.Run("it is", func(t *testing.T) {
		w, a, b := quicPair(t)
		w.now = w.now.Add(sureTime)
		id := w.newID()
		try(w, id, a, 3*time.Second, func() { a.read++; w.wants(b.id, b) })
		if w.at.tries(id.Bytes()) || a.conn.used[0] != id {
			t.Error("the ID is tried further")
		}
	})
	t.Run("the other one has not gone on", func(t *testing.T) {
		w, a, b := quicPair(t)
		w.now = w.now.Add(sureTime)
		id := w.newID()
		try(w, id, a, 5*time.Second, func() { a.read++ })
		w.wants(a.id, a)
		w.wants(id, b)
	})
	t.Run("the other one's server was silent", func(t *testing.T) {
		w, a, b := quicPair(t)
		w.now = w.now.Add(sureTime)
		id := w.newID()
		try(w, id, a, silentTime+500*time.Millisecond, func() {})
		try(w, id, b, 5*time.Second, func() { b.read++ }) // which resets what it does not have
		w.wants(b.id, b)
		w.wants(id, a)
	})
	t.Run("it may still be kept alive by its own", func(t *testing.T) {
		w, a, b := quicPair(t)
		id := w.newID() // that somebody makes up
		try(w, id, a, sureTime-500*time.Millisecond, func() { a.read++; w.wants(b.id, b) })
		w.wants(a.id, a)
		if a.conn.shares || !w.at.tries(id.Bytes()) {
			t.Error("an ID that was made up is believed")
		}
	})
	t.Run("the other one takes an ID that nobody knows, too", func(t *testing.T) {
		w, a, b := quicPair(t)
		w.now = w.now.Add(sureTime)
		id, other := w.newID(), w.newID()
		try(w, id, a, 3*time.Second, func() { a.read++ })
		try(w, other, a, silentTime+500*time.Millisecond, func() {})
		try(w, other, b, verifiedOver, func() { b.read++ })
		a.read++
		w.wants(id, a)
		if !w.at.tries(id.Bytes()) {
			t.Error("it is believed that the other one has gone on, because this one was silent")
		}
	})
	t.Run("its server has said nothing", func(t *testing.T) {
		w := newQUICWorld(t, 1)
		a, b := w.begin(time.Second, false), w.begin(time.Second, true) // b is not verified: silence does not lead there
		w.now = w.now.Add(sureTime)
		id := w.newID()
		try(w, id, a, 5*time.Second, func() { w.wants(b.id, b) })
		if !w.at.tries(id.Bytes()) {
			t.Error("an ID that was made up is believed")
		}
	})
}
