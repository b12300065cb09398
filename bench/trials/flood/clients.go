//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/dgram"
)

// Sorts of clients.
const (
	old   = iota // a session that was there before the flood
	known        // a new client in the network of an old session
	quiet        // a new client in a network that nobody else is in
	sorts
)

// Attempts of a new client, like a resolver's.
const (
	attempts = 3
	retry    = time.Second
)

// client is one of a sort; all of a sort share a socket, which sends from their addresses in turn
// (IP_PKTINFO). To the relay each is a different client.
type client struct {
	sort, number int
	sent         []time.Time // of each datagram
	took         []time.Duration
}

// clients sends what is due, and notes what comes back.
type clients struct {
	mu     sync.Mutex
	sock   *net.UDPConn
	conn   *dgram.Conn
	to     netip.AddrPort
	size   int
	all    []*client
	fresh  [sorts]int // how many there were of each sort
	wrong  int        // replies that are not their client's
	flood  atomic.Bool
	closed atomic.Bool
	done   sync.WaitGroup
}

// Not measured: the datagrams of a session before the flood.
const unmeasured = -1

func newClients(to netip.AddrPort, size int) (*clients, error) {
	sock, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		return nil, err
	}
	conn, err := dgram.New(sock, dgram.Config{Local: true})
	if err != nil {
		return nil, err
	}
	if _, err := conn.SetReadBuffer(16 << 20); err != nil {
		return nil, err
	}
	return &clients{sock: sock, conn: conn, to: to, size: max(size, 32)}, nil
}

func (c *client) address() netip.Addr {
	n := uint32(c.number)
	switch c.sort {
	case old:
		n = oldNet + n/perNet<<8 + 1 + n%perNet
	case known:
		n = oldNet + n%50<<8 + 10 + n/50%100
	case quiet:
		n = quietNet + n<<8 + 1
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// forgedOnly reports whether an address is one of the networks of old sessions that none of the clients has; see kinds.
func forgedOnly(a netip.Addr) bool {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])>>16 == oldNet>>16 && b[3] >= 128
}

// fill writes datagram seq of client id: a head, and bytes that follow from it.
func fill(b []byte, id, seq uint32) {
	binary.BigEndian.PutUint32(b, id|1<<31)
	binary.BigEndian.PutUint32(b[4:], seq)
	x := uint64(id)<<32 | uint64(seq)
	for i := 8; i+8 <= len(b); i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.BigEndian.PutUint64(b[i:], x)
	}
}

// receive notes replies until the socket is closed.
func (cs *clients) receive() {
	ms := dgram.MakeMessages(64)
	want := make([]byte, cs.size&^7)
	for {
		for i := range ms {
			ms[i].Buf = ms[i].Buf[:dgram.MaxSize]
		}
		n, err := cs.conn.ReadBatch(ms)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		now := time.Now()
		cs.mu.Lock()
		for i := range ms[:n] {
			cs.received(&ms[i], want, now)
		}
		cs.mu.Unlock()
	}
}

// received notes the replies of a message, which are several if the kernel has merged them.
func (cs *clients) received(m *dgram.Message, want []byte, now time.Time) {
	for b := range m.Datagrams() {
		cs.take(b, want, m.Local, now)
	}
}

func (cs *clients) take(b, want []byte, local netip.Addr, now time.Time) {
	if len(b) != len(want) {
		cs.wrong++
		return
	}
	if b[0]&0x80 == 0 && forgedOnly(local) {
		return // the forger has hit on the port that the clients send from, and this is the reply to it
	}
	id, seq := binary.BigEndian.Uint32(b)&^(1<<31), binary.BigEndian.Uint32(b[4:])
	if int(id) >= len(cs.all) || int(seq) >= len(cs.all[id].sent) {
		cs.wrong++
		return
	}
	c := cs.all[id]
	fill(want, id, seq)
	if string(b) != string(want) || local != c.address() {
		cs.wrong++
		return
	}
	if c.took[seq] == 0 {
		c.took[seq] = now.Sub(c.sent[seq])
	}
}

// add makes a client.
func (cs *clients) add(sort int) int {
	cs.all = append(cs.all, &client{sort: sort, number: cs.fresh[sort]})
	cs.fresh[sort]++
	return len(cs.all) - 1
}

// send sends one datagram of each of some clients.
func (cs *clients) send(ids []int) error {
	ms := make([]dgram.Message, len(ids))
	cs.mu.Lock()
	now := time.Now()
	for i, id := range ids {
		c := cs.all[id]
		b := make([]byte, cs.size&^7)
		fill(b, uint32(id), uint32(len(c.sent)))
		ms[i] = dgram.Message{Buf: b, Addr: cs.to, Local: c.address()}
		c.sent = append(c.sent, now)
		wait := time.Duration(0)
		if c.sort == old && !cs.flood.Load() {
			wait = unmeasured
		}
		c.took = append(c.took, wait)
	}
	cs.mu.Unlock()
	_, err := cs.conn.WriteBatch(ms)
	return err
}

// answered reports whether a client has had a reply.
func (c *client) answered() bool {
	for _, d := range c.took {
		if d > 0 {
			return true
		}
	}
	return false
}

// run sends what is due until stop is called.
func (cs *clients) run(b *bench) {
	const step = 5 * time.Millisecond
	type again struct {
		id   int
		when time.Time
	}
	var olds []int
	var retries []again
	for range b.Flows {
		olds = append(olds, cs.add(old))
	}
	start := time.Now()
	sent, fresh := 0, 0
	for !cs.closed.Load() {
		now := time.Now()
		var due []int
		// Sessions are spread over their interval.
		for want := int(now.Sub(start) * time.Duration(b.Flows) / b.Every); sent < want; sent++ {
			due = append(due, olds[sent%b.Flows])
		}
		if cs.flood.Load() {
			if fresh == 0 {
				fresh = int(now.Sub(start).Seconds() * float64(b.New))
			}
			for want := int(now.Sub(start).Seconds() * float64(b.New)); fresh < want; fresh++ {
				cs.mu.Lock()
				k, q := cs.add(known), cs.add(quiet)
				cs.mu.Unlock()
				due = append(due, k, q)
				retries = append(retries, again{k, now.Add(retry)}, again{q, now.Add(retry)})
			}
		}
		for len(retries) > 0 && !retries[0].when.After(now) {
			r := retries[0]
			retries = retries[1:]
			cs.mu.Lock()
			more := !cs.all[r.id].answered() && len(cs.all[r.id].sent) < attempts
			cs.mu.Unlock()
			if more {
				due = append(due, r.id)
				retries = append(retries, again{r.id, now.Add(retry)})
			}
		}
		for len(due) > 0 {
			n := min(len(due), 64)
			if err := cs.send(due[:n]); err != nil {
				os.Stderr.WriteString("flood: clients: " + err.Error() + "\n")
			}
			due = due[n:]
		}
		time.Sleep(step)
	}
}

func (cs *clients) begin(b *bench) {
	cs.done.Go(cs.receive)
	go cs.run(b)
}

// stop ends the sending, waits for late replies, and closes the socket.
func (cs *clients) stop() {
	cs.closed.Store(true)
	time.Sleep(2 * time.Second)
	cs.sock.Close()
	cs.done.Wait()
}
