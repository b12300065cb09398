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
