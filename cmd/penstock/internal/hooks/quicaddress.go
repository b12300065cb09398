package hooks

import (
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/quichello"
)

// quicPeer is what tells the datagrams of a connection from those of others at its client's address and port.
type quicPeer struct {
	client   quicid.ID    // the client's own ID; empty: not known, or it has none
	retry    quicid.ID    // that the server has given itself when it asked the client to begin again; empty: it has not
	used     [3]quicid.ID // in short headers, the newest one first
	once     quicid.ID    // in the last short header whose ID was none of these; it is one of them when it comes again
	verified bool         // the client has written to an ID that only somebody knows who has had the server's answer
	chosen   bool         // the client has made up a second ID before the server had named itself: the server's may be that one
	shares   bool         // it is several connections, as after the client's router has given it another port
	began    time.Time
	changed  time.Time // used[0]
	known    time.Time // when a datagram came that is the connection's for sure
	last     time.Time // when any came
	address  *quicAddress
}

// quicAddress is what is known of an address and port with several connections. Its zero value is ready.
//
// An ID in a short header that nobody knows was given to its client in a packet that nobody here can read. It is tried with one
// connection. Two things show that this was wrong, as a client writes to one ID at a time:
//
//   - the connection goes on with an ID that it had before;
//   - its server says nothing for a second while the client repeats itself.
//
// Then another connection is tried. What a server sends shows nothing: it may be an answer to something else, or a Stateless Reset. So an
// ID becomes the connection's only when all others have gone on with theirs, or seem to be over, and this one has not for a while, and when a
// server that does not have it would have been silent.
//
// Whoever forges datagrams of an address can begin flows there, and send what nobody knows. So connections come first whose clients have had the
// server's answer, then the oldest one; and silence leads to none that may be forged.
type quicAddress struct {
	guesses []quicGuess
}

// quicGuess is an ID that nobody knows, and the connection with which it is tried.
type quicGuess struct {
	id    quicid.ID
	of    *quicConn
	since time.Time // the ID is there
	heard time.Time // something from the server of of, or when it was given to of
	spoke bool      // the server of of has said something since then
	last  time.Time // that it came
	n     int       // datagrams since then
	count int       // datagrams in all

	read int64 // bytes that of has had from its server by then
	// silent are connections with which it was tried, and whose server has said nothing.
	silent []*quicConn
}

const (
	// maxGuesses is how many IDs of an address are tried at a time. A further one takes the place of one that has not come for guessTime, or of
	// the first of those that have come least often.
	maxGuesses, guessTime = 32, time.Minute
	// lateTime is by how much a datagram may be late because the network has changed the order.
	lateTime = 100 * time.Millisecond
	// silentTime and silentCount are for how long, and for how many datagrams, a server says nothing to a connection that it does not have.
	silentTime, silentCount = time.Second, 3
	// sureTime is for how long a client has not used another ID of the connection when the one that was tried counts as the connection's. It
	// is longer than a client is silent that keeps its connection alive, so that nobody has the relay believe in IDs that he has made up.
	sureTime = 10 * time.Second
	// amplification is how many bytes a server sends at most for each one that it has had, as long as it does not know that its client is there.
	// RFC 9000, 8.1.
	amplification = 3
	// guessLen is how much of an ID is compared where nothing says how long it is: most have eight bytes or more.
	guessLen = 8
)

// try returns the connection with which a datagram is tried whose short header has an ID that none of conns knows; b begins with the ID. read
// returns how many bytes a connection has had from its server.
func (a *quicAddress) try(conns []*quicConn, b []byte, read func(*quicConn) int64, now time.Time) *quicConn {
	n := sharedLen(conns)
	if len(b) < n {
		return likely(conns)
	}
	id, _ := quicid.NewID(b[:n])
	if len(conns) == 1 {
		if a != nil {
			a.guesses = nil // whatever was tried is its own, or of one that has ended
		}
		conns[0].once, conns[0].last = id, now
		return conns[0]
	}
	g := a.guess(id, now)
	g.keep(conns)
	if g.of != nil {
		switch n := read(g.of); {
		case n != g.read:
			g.heard, g.spoke, g.n, g.read = now, true, 0, n
		case g.n >= silentCount && now.Sub(g.heard) >= silentTime && slices.ContainsFunc(conns, func(c *quicConn) bool { return c.verified && c != g.of }):
			g.silent = append(g.silent, g.of)
		}
	}
	least, gone := against, 0
	for _, c := range conns {
		speaks := a.speaksAgainst(c, g)
		if least = min(least, speaks); speaks == against || c != g.of && now.Sub(c.last) > verifiedOver {
			gone++
		}
	}
	last := gone == len(conns)-1 // all others have gone on, or are over
	if least == against {        // whose it is has been silent for longest
		g.silent = nil
		conns = []*quicConn{slices.MinFunc(conns, func(x, y *quicConn) int { return x.known.Compare(y.known) })}
	} else {
		conns = slices.DeleteFunc(slices.Clone(conns), func(c *quicConn) bool { return a.speaksAgainst(c, g) > least })
	}
	if !slices.Contains(conns, g.of) {
		g.of = likely(conns)
		g.heard, g.spoke, g.n, g.read = now, false, 0, read(g.of)
	}
	of := g.of
	g.n++
	g.count++
	g.last, of.last = now, now
	if last && len(g.silent) == 0 && now.Sub(of.known) > sureTime && g.spoke && now.Sub(g.since) > 2*silentTime {
		of.use(id, now)
		a.forget(id)
	}
	return of
}

// keep forgets connections that have ended: those that are not among conns.
func (g *quicGuess) keep(conns []*quicConn) {
	ended := func(c *quicConn) bool { return !slices.Contains(conns, c) }
	if g.silent = slices.DeleteFunc(g.silent, ended); ended(g.of) {
		g.of = nil
	}
}

// What speaks against an ID being a connection's.
const (
	nothing = iota
	perhaps // another ID goes on that is tried with it, too
	against // it goes on with one that is known, or the server has said nothing
)

func (a *quicAddress) speaksAgainst(c *quicConn, g *quicGuess) int {
	switch {
	case slices.Contains(g.silent, c), !c.shares && c.known.Sub(g.since) > lateTime:
		return against
	case slices.ContainsFunc(a.guesses, func(o quicGuess) bool {
		return o.of == c && o.id != g.id && o.count >= silentCount && o.last.Sub(g.since) > lateTime
	}):
		return perhaps
	}
	return nothing
}

// guess returns what is tried for an ID, which is nothing yet if it is new.
func (a *quicAddress) guess(id quicid.ID, now time.Time) *quicGuess {
	for i := range a.guesses {
		if a.guesses[i].id == id {
			return &a.guesses[i]
		}
	}
	if len(a.guesses) == maxGuesses {
		a.forget(slices.MinFunc(a.guesses, func(x, y quicGuess) int { return x.worth(now) - y.worth(now) }).id)
	}
	a.guesses = append(a.guesses, quicGuess{id: id, since: now})
	return &a.guesses[len(a.guesses)-1]
}

// worth returns how often an ID came, if it still does.
func (g *quicGuess) worth(now time.Time) int {
	if now.Sub(g.last) > guessTime {
		return 0
	}
	return g.count
}

func (a *quicAddress) forget(id quicid.ID) {
	a.guesses = slices.DeleteFunc(a.guesses, func(g quicGuess) bool { return g.id == id })
}

// tries reports whether the ID with which b begins is tried.
func (a *quicAddress) tries(b []byte) bool {
	return a != nil && slices.ContainsFunc(a.guesses, func(g quicGuess) bool { return g.id.Begins(b) })
}

// likely returns the connection that is most likely to use another ID: of those that are verified the one that has sent last, otherwise the oldest
// one.
func likely(conns []*quicConn) *quicConn {
	return slices.MaxFunc(conns, func(x, y *quicConn) int {
		switch {
		case x.verified != y.verified:
			if x.verified {
				return 1
			}
			return -1
		case x.verified:
			return x.last.Compare(y.last)
		}
		return y.began.Compare(x.began)
	})
}

// clientMatches is what matches returns for the client's own ID, which is more than any ID has bytes.
const clientMatches = quicid.MaxLen + 1

// matches returns how much of a header is of the connection for sure, and the ID that it is addressed to, if that is known; 0: nothing.
//
// A client makes up the ID in its first packet, and a server may take that over. Whoever forges a first packet could choose it so that later IDs
// of others begin with it. So a short header is compared with it only if it is long.
func (c *quicConn) matches(head *quichello.Header) (n int, id quicid.ID) {
	short := head.Kind == quichello.Short
	try := func(known *quicid.ID) {
		if known.Len() > n && known.Begins(head.DestID) && (short || known.Len() == len(head.DestID)) {
			n, id = known.Len(), *known
		}
	}
	for i := range c.used {
		try(&c.used[i])
	}
	for i := range c.ids {
		try(&c.ids[i].id)
	}
	if newest := c.newest.Load(); newest != nil {
		try(newest)
	}
	try(&c.once)
	if !short || c.shown != c.first || c.shown.Len() >= aloneLen {
		try(&c.shown)
	}
	if !short {
		try(&c.first)
		try(&c.retry)
		if c.client.Len() > 0 && string(head.SrcID) == string(c.client.Bytes()) {
			n = clientMatches
			id, _ = quicid.NewID(head.DestID)
		}
	}
	return n, id
}

// before reports whether a datagram is the connection's rather than that of o, where n and m bytes of its header match. An ID of a later one may be
// made up so that it is like that of an earlier one.
func (c *quicConn) before(o *quicConn, n, m int, kind quichello.Kind) bool {
	switch {
	case min(n, m) < quicid.MinLen: // so short an ID begins others by chance
		return n > m
	case kind == quichello.Short && c.verified != o.verified:
		return c.verified
	case kind == quichello.Short && !c.began.Equal(o.began):
		return c.began.Before(o.began)
	}
	return n > m
}

// take notes that a datagram of the connection has come, which is addressed to an ID. It reports whether that changes what outlives the process.
func (c *quicConn) take(head *quichello.Header, id quicid.ID, now time.Time) (changed bool) {
	c.known, c.last = now, now
	switch {
	case !c.chosen && head.Kind == quichello.Initial && c.first.Len() > 0 && c.shown.Len() == 0 && id != c.first && id != c.retry:
		c.chosen, changed = true, true
	case !c.chosen && !c.verified && id.Len() >= quicid.MinLen && id == c.shown && id != c.first:
		c.verified, changed = true, true
	}
	if head.Kind == quichello.Short || id != c.first && id.Len() >= quicid.MinLen && id.Len() == c.shown.Len() { // quic-go uses others in its handshake
		c.use(id, now)
	}
	return changed
}

// use notes the ID of a short header. A client that goes back to an earlier one has several connections here.
func (c *quicConn) use(id quicid.ID, now time.Time) {
	at := slices.Index(c.used[:], id)
	switch {
	case at == 0:
		return
	case at == 1 && now.Sub(c.changed) > lateTime:
		c.shares = true
	case at < 0:
		at = len(c.used) - 1
	}
	copy(c.used[1:at+1], c.used[:at])
	c.used[0], c.changed = id, now
}

// sharedLen returns how much of an ID is compared that nobody knows: as much as the shortest ones have.
func sharedLen(conns []*quicConn) int {
	n := guessLen
	for _, c := range conns {
		id := c.shown
		if newest := c.newest.Load(); id.Len() == 0 && newest != nil {
			id = *newest
		}
		if id.Len() >= quicid.MinLen {
			n = min(n, id.Len())
		}
	}
	return n
}
