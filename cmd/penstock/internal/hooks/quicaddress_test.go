package hooks

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/quichello"
)

// quicWorld is an address with several connections, whose clock runs as fast as it is computed. Only it knows whose an ID is.
type quicWorld struct {
	t     *testing.T
	rnd   *rand.Rand
	now   time.Time
	at    quicAddress
	conns []*quicConn
	all   []*quicOwner
	next  uint64
	// resets: servers answer what is not theirs
	resets bool
}

// quicOwner is a client's end of a connection.
type quicOwner struct {
	conn     *quicConn
	id       quicid.ID
	read     int64         // bytes that the relay has had from its server
	every    time.Duration // how often it sends something
	sends    time.Time     // again
	waits    time.Time     // since when it has no answer; zero: it waits for none
	tries    int           // since then
	changes  int           // datagrams until it takes another ID
	over     bool          // it is closed, of which the relay knows nothing
	download bool          // its server goes on sending for a while, whatever it gets
	missed   int
}

// newID returns an ID that nobody has had.
func (w *quicWorld) newID() quicid.ID {
	w.next++
	id, _ := quicid.NewID(binary.BigEndian.AppendUint64(nil, w.next*0x9e3779b97f4a7c15))
	return id
}

// begin adds a connection whose client has ended its handshake. one that has moved is not verified.
func (w *quicWorld) begin(every time.Duration, moved bool) *quicOwner {
	o := &quicOwner{conn: &quicConn{}, id: w.newID(), every: every, sends: w.now, changes: 1}
	o.conn.began, o.conn.last = w.now, w.now
	if o.conn.came = cameNew; moved {
		o.conn.came = cameLearned
		o.conn.use(o.id, w.now)
		o.changes = w.rnd.IntN(2000)
	} else {
		o.conn.shown = o.id
		w.send(o)
	}
	w.all = append(w.all, o)
	w.conns = append(w.conns, o.conn)
	return o
}

// deliver passes a datagram with a short header to the relay, and returns whose it is taken for.
func (w *quicWorld) deliver(id quicid.ID) *quicConn {
	head := quichello.Header{DestID: append(id.Bytes(), "what follows"...)}
	of, most, to := (*quicConn)(nil), 0, quicid.ID{}
	for _, c := range w.conns {
		if n, id := c.matches(&head); n > 0 && (of == nil || c.before(of, n, most, head.Kind)) {
			of, most, to = c, n, id
		}
	}
	if of != nil {
		of.take(&head, to, w.now)
		return of
	}
	return w.at.try(w.conns, head.DestID, func(c *quicConn) int64 {
		if !slices.Contains(w.conns, c) {
			w.t.Fatal("a connection is asked for that has ended")
		}
		return w.ownerOf(c).read
	}, w.now)
}

func (w *quicWorld) ownerOf(c *quicConn) *quicOwner {
	for _, o := range w.all {
		if o.conn == c {
			return o
		}
	}
	return &quicOwner{}
}

// send has a client send something now.
func (w *quicWorld) send(o *quicOwner) {
	if len(w.conns) == 0 || o.conn.known.IsZero() && o.conn.came == cameNew { // its handshake
		o.conn.take(&quichello.Header{Kind: quichello.Handshake, DestID: o.id.Bytes()}, o.id, w.now)
		return
	}
	if o.changes--; o.changes == 0 {
		o.id, o.changes = w.newID(), 5000+w.rnd.IntN(10000)
	}
	got := w.ownerOf(w.deliver(o.id))
	if got == o {
		o.read += 30
		o.waits, o.tries, o.sends = time.Time{}, 0, w.now.Add(o.every)
		return
	}
	o.missed++
	if w.resets {
		got.read += 29 // a Stateless Reset
	}
	if o.waits.IsZero() {
		o.waits = w.now
	}
	o.sends = w.now.Add(min(o.every, 200*time.Millisecond<<min(o.tries, 5)))
	o.tries++
}

// run has time pass. meanwhile is called each time before a client sends something.
func (w *quicWorld) run(d time.Duration, meanwhile func()) {
	w.t.Helper()
	for end := w.now.Add(d); ; {
		next := (*quicOwner)(nil)
		for _, o := range w.all {
			if !o.over && (next == nil || o.sends.Before(next.sends)) {
				next = o
			}
		}
		if next == nil || next.sends.After(end) {
			w.now = end
			return
		}
		if next.sends.After(w.now) {
			w.now = next.sends
		}
		if meanwhile != nil {
			meanwhile()
		}
		for _, o := range w.all {
			if o.download && o.waits.IsZero() || w.now.Sub(o.waits) < 3*time.Second { // what nobody acknowledges ends soon
				o.read += int64(w.rnd.IntN(1200))
			}
		}
		w.send(next)
		if waits := next.waits; !waits.IsZero() && w.now.Sub(waits) > quicLost {
			for i, o := range w.all {
				w.t.Logf("connection %d: known %v, used %v, once %v, id %v, every %v, download %t, shares %t", i, o.conn.known.Sub(w.now), o.conn.used, o.conn.once, o.id, o.every, o.download, o.conn.shares)
			}
			for _, g := range w.at.guesses {
				w.t.Logf("%v: of %d, since %v, last %v, n %d, silent %d", g.id, w.index(w.ownerOf(g.of)), g.since.Sub(w.now), g.last.Sub(w.now), g.n, len(g.silent))
			}
			w.t.Fatalf("at %v, connection %d of %d has had no answer for %v", w.now.Sub(quicEpoch), w.index(next), len(w.all), w.now.Sub(waits))
		}
	}
}

func (w *quicWorld) index(o *quicOwner) int {
	for i, other := range w.all {
		if other == o {
			return i
		}
	}
	return -1
}

var quicEpoch = time.Unix(1_800_000_000, 0)

// quicLost is how long a connection may be without an answer: two keepalives of those that send nothing else, and two seconds.
const quicLost = 12 * time.Second

// The check runs the first worlds, always the same ones; -quic.worlds=2000 takes a minute and a half.
var quicWorlds = flag.Int("quic.worlds", 20, "how many simulated addresses with several connections are run, of each kind")

func newQUICWorld(t *testing.T, seed uint64) *quicWorld {
	return &quicWorld{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), now: quicEpoch}
}

// Connections of one address find their servers again whenever they take another ID, for ten minutes, however busy or silent they are: each
// says something every five seconds. Whoever forges datagrams with IDs that nobody knows changes nothing.
func TestQUICConnectionsOfOneAddress(t *testing.T) {
	for _, forged := range []bool{false, true} {
		for i := range *quicWorlds {
			seed := uint64(i)
			t.Run(fmt.Sprintf("forged=%t/%d", forged, i), func(t *testing.T) {
				w := newQUICWorld(t, seed)
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("seed %d", seed)
					}
				})
				for range 2 + w.rnd.IntN(4) {
					o := w.begin([]time.Duration{5 * time.Second, 20 * time.Millisecond, 100 * time.Millisecond}[w.rnd.IntN(3)], false)
					o.download = w.rnd.IntN(2) == 0
					w.run(time.Duration(w.rnd.IntN(3000))*time.Millisecond, nil)
				}
				w.run(10*time.Minute, func() {
					if forged && w.rnd.IntN(20) == 0 {
						w.deliver(w.newID())
					}
				})
			})
		}
	}
}

// A connection is not led away by flows that somebody else has begun in its name, whatever he sends to them
// and however silent its server is.
func TestQUICForgedBesideOne(t *testing.T) {
	for i := range *quicWorlds {
		seed := uint64(i)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newQUICWorld(t, seed)
			o := w.begin([]time.Duration{5 * time.Second, 100 * time.Millisecond}[i%2], false)
			var forged []*quicConn
			for range 1 + w.rnd.IntN(5) {
				c := &quicConn{}
				c.began, c.last = w.now, w.now
				c.first, c.shown = w.newID(), w.newID()
				if w.rnd.IntN(2) == 0 { // by an ID that he has had from a server
					c.came = cameLearned
					c.use(w.newID(), w.now)
				}
				forged = append(forged, c)
				w.conns = append(w.conns, c)
			}
			w.rnd.Shuffle(len(w.conns), func(i, j int) { w.conns[i], w.conns[j] = w.conns[j], w.conns[i] })
			o.changes = 10
			o.conn.verified = i%4 < 2
			o.conn.began = w.now.Add(-time.Millisecond) // he is not there first
			w.run(10*time.Minute, func() {
				c := forged[w.rnd.IntN(len(forged))]
				if id := c.used[0]; id.Len() > 0 {
					if w.deliver(id) != c {
						t.Fatalf("seed %d: he does not even reach his own flow", seed)
					}
				} else if w.deliver(w.newID()) != o.conn {
					t.Fatalf("seed %d: an ID that nobody knows is tried with a forged flow", seed)
				}
				if w.rnd.IntN(50) == 0 {
					o.changes = 1
				}
			})
			if o.missed > 0 {
				t.Errorf("seed %d: %d datagrams went to another server", seed, o.missed)
			}
		})
	}
}

// end ends a connection, of which the relay knows.
func (w *quicWorld) end(o *quicOwner) {
	o.over = true
	w.conns = slices.DeleteFunc(w.conns, func(c *quicConn) bool { return c == o.conn })
}

// A connection with which an ID is tried, or was in vain, may end: nobody asks for it any more.
func TestQUICTriedEnds(t *testing.T) {
	for first := range 3 {
		w := newQUICWorld(t, 1)
		owners := []*quicOwner{w.begin(time.Second, false), w.begin(time.Second, false), w.begin(time.Second, false)}
		id := w.newID()
		for range 40 { // until it was tried with each
			w.deliver(id)
			w.now = w.now.Add(100 * time.Millisecond)
		}
		w.end(owners[first])
		if of := w.deliver(id); !slices.Contains(w.conns, of) {
			t.Fatal("a datagram is of a connection that has ended")
		}
		for _, g := range w.at.guesses {
			if slices.Contains(g.silent, owners[first].conn) || g.of == owners[first].conn {
				t.Error("a connection that has ended is remembered")
			}
		}
		w.begin(time.Second, false)
		w.deliver(id)
		for len(w.conns) > 1 {
			w.end(w.ownerOf(w.conns[0]))
			w.deliver(id)
		}
		if of := w.conns[0]; w.at.tries(id.Bytes()) || of.once != id {
			t.Errorf("an ID is tried further, though only one connection is there")
		}
	}
}

// A connection that comes back after a while of silence, in a burst and with another ID, is not taken for one that has been silent for longer.
func TestQUICBurstAfterSilence(t *testing.T) {
	w := newQUICWorld(t, 1)
	busy, idle := w.begin(time.Second, false), w.begin(time.Second, false)
	for _, o := range []*quicOwner{busy, idle} {
		o.conn.verified = true
		w.deliver(o.id)
	}
	w.now = w.now.Add(time.Minute) // neither says anything; the second one was the last
	idle.conn.last = idle.conn.last.Add(time.Second)
	busy.id = w.newID()
	reached := false
	for i := range 100 {
		if i == 1 {
			idle.read += 29 // its server says something, by chance or because it does not have the ID
		}
		got := w.ownerOf(w.deliver(busy.id))
		reached = got == busy
		if w.now = w.now.Add(20 * time.Millisecond); reached {
			break
		}
	}
	if !reached {
		t.Error("its packets go to the other one's server for ever")
	}
}

// Whoever knows the beginning of an ID, as he has chosen it or seen it, gets nothing that is addressed to it.
func TestQUICForgedBeginning(t *testing.T) {
	id := func(text string) quicid.ID { id, _ := quicid.NewID([]byte(text)); return id }
	head := func(kind quichello.Kind, text string) *quichello.Header {
		return &quichello.Header{Kind: kind, DestID: []byte(text)}
	}
	real := &quicConn{first: id("made-up1"), shown: id("server01")}
	for _, beginning := range []string{"s", "serv", "server0"} {
		for _, takenOver := range []bool{false, true} {
			forged := &quicConn{first: id(beginning), shown: id("server02")}
			if takenOver {
				forged.shown = forged.first
			}
			if n, _ := forged.matches(head(quichello.Short, "server03...")); n != 0 {
				t.Errorf("%q matches %d bytes of another ID", beginning, n)
			}
			for _, h := range []*quichello.Header{head(quichello.Short, "server01..."), head(quichello.Handshake, "server01"), head(quichello.Initial, "made-up1")} {
				n, _ := real.matches(h)
				if f, _ := forged.matches(h); n != 8 || f >= n {
					t.Errorf("%q: %d bytes of %q, and %d of the connection that it is of", beginning, f, h.DestID, n)
				}
			}
		}
	}
}

// Whoever begins a connection in somebody's name, and writes to the other one's ID there, gets nothing that is addressed to it.
func TestQUICForgedSameID(t *testing.T) {
	id := func(text string) quicid.ID { id, _ := quicid.NewID([]byte(text)); return id }
	for _, verified := range []bool{false, true} {
		real, forged := &quicConn{first: id("made-up1"), shown: id("server01")}, &quicConn{first: id("made-up2"), shown: id("server02")}
		real.began, forged.began, real.verified = quicEpoch, quicEpoch.Add(time.Millisecond), verified
		forged.client = id("me")
		for _, made := range []string{"s", "serv", "server01", "server01.", "server03"} {
			h := &quichello.Header{Kind: quichello.Handshake, DestID: []byte(made), SrcID: []byte("me")}
			if n, to := forged.matches(h); n > 0 {
				forged.take(h, to, quicEpoch)
			}
		}
		short := &quichello.Header{Kind: quichello.Short, DestID: []byte("server01...")}
		n, _ := real.matches(short)
		m, _ := forged.matches(short)
		if !real.before(forged, n, m, short.Kind) || forged.before(real, m, n, short.Kind) {
			t.Errorf("verified %t: a datagram is taken for one of a forged connection", verified)
		}
		if m, _ := forged.matches(&quichello.Header{Kind: quichello.Short, DestID: []byte("server99...")}); m > 0 {
			t.Errorf("a forged connection has %d bytes of an ID that nobody knows", m)
		}
	}
}

// Whoever forges first packets with two IDs, of which the server takes over the second one, is not taken for a client that has had its answer.
func TestQUICForgedSecondID(t *testing.T) {
	id := func(text string) quicid.ID { id, _ := quicid.NewID([]byte(text)); return id }
	for _, retried := range []bool{false, true} { // by a Retry, whose ID only somebody knows who has had it
		c := &quicConn{first: id("made-up1")}
		c.client = id("me")
		if retried {
			c.retry = id("made-up2")
		}
		take := func(h quichello.Header) {
			t.Helper()
			n, to := c.matches(&h)
			if n == 0 {
				t.Fatalf("%q is of another connection", h.DestID)
			}
			c.take(&h, to, quicEpoch)
		}
		take(quichello.Header{Kind: quichello.Initial, DestID: []byte("made-up2"), SrcID: []byte("me")})
		c.shown = id("made-up2")
		take(quichello.Header{Kind: quichello.Short, DestID: []byte("made-up2...")})
		if c.verified != retried {
			t.Errorf("after a Retry: %t; verified: %t", retried, c.verified)
		}
	}
}

// After the client's router has given it another port, two connections to one server share a flow. When one of them takes another ID, none is
// pulled back and forth.
func TestQUICSharedFlow(t *testing.T) {
	w := newQUICWorld(t, 1)
	shared, other := w.begin(time.Second, true), w.begin(5*time.Second, true)
	other.changes = 1 << 30
	second := w.newID() // of the other connection in the flow
	moves, of := 0, (*quicConn)(nil)
	shared.conn.use(second, w.now)
	w.now = w.now.Add(time.Second)
	for i := range 600 {
		if i > 10 {
			x := w.deliver(shared.id)
			if i == 11 {
				shared.id = w.newID()
				x = w.deliver(shared.id)
			}
			if x != of {
				moves++
			}
			of = x
		}
		if w.deliver(second) != shared.conn || i <= 10 && w.deliver(shared.id) != shared.conn {
			t.Fatal("an ID that is known has left its flow")
		}
		if i%5 == 0 && w.deliver(other.id) != other.conn {
			t.Fatal("an ID that is known has left its flow")
		}
		w.now = w.now.Add(time.Second)
	}
	if of != shared.conn || moves > 3 {
		t.Errorf("its datagrams have changed flows %d times", moves)
	}
}

// When an address has no room, forged connections give way, the newest one first, and then those that are silent for long.
func TestQUICMakesRoom(t *testing.T) {
	now := quicEpoch
	conn := func(came quicCame, verified bool, began, last time.Duration) *quicConn {
		c := &quicConn{came: came}
		c.verified, c.began, c.last = verified, now.Add(-began), now.Add(-last)
		return c
	}
	busy, silent, longest := conn(cameNew, true, time.Hour, 5*time.Second), conn(cameNew, true, time.Hour, 31*time.Second), conn(cameLearned, false, time.Hour, 40*time.Second)
	moved := conn(cameLearned, false, time.Hour, 29*time.Second) // whose ID nobody can make up
	first, forged, fresh := conn(cameNew, false, time.Hour, time.Minute), conn(cameNew, false, 2*time.Second, 2*time.Second), conn(cameNew, false, time.Millisecond, time.Millisecond)
	for _, row := range []struct {
		conns []*quicConn
		want  *quicConn
	}{
		{[]*quicConn{busy, nil, fresh}, nil},
		{[]*quicConn{moved, busy}, nil},
		{[]*quicConn{silent, longest, busy, nil}, longest},
		{[]*quicConn{busy, silent, fresh}, silent},
		{[]*quicConn{silent, first, forged, longest, fresh}, forged},
		{[]*quicConn{fresh, first, silent}, first},
	} {
		if got := leastWorth(row.conns, now); got != row.want {
			t.Errorf("%+v gives way, want %+v", got, row.want)
		}
	}
}

// Whoever writes to the ID of the server's first packet has had it.
func TestQUICVerified(t *testing.T) {
	id := func(text string) quicid.ID { id, _ := quicid.NewID([]byte(text)); return id }
	for _, row := range []struct {
		head  quichello.Header
		shown string
		want  bool
	}{
		{quichello.Header{Kind: quichello.Initial, DestID: []byte("made-up1"), SrcID: []byte("me")}, "server01", false},
		{quichello.Header{Kind: quichello.Handshake, DestID: []byte("server01"), SrcID: []byte("me")}, "server01", true},
		{quichello.Header{Kind: quichello.Initial, DestID: []byte("server01"), SrcID: []byte("me")}, "server01", true},
		{quichello.Header{Kind: quichello.Short, DestID: []byte("server01 and more")}, "server01", true},
		{quichello.Header{Kind: quichello.Handshake, DestID: []byte("made-up1")}, "made-up1", false},
	} {
		c := &quicConn{first: id("made-up1"), shown: id(row.shown)}
		c.client = id("me")
		n, to := c.matches(&row.head)
		if n > 0 {
			c.take(&row.head, to, quicEpoch)
		}
		if n == 0 || c.verified != row.want {
			t.Errorf("%v: %d, verified %t", row.head, n, c.verified)
		}
	}
}
