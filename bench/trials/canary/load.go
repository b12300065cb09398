//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tally counts clients by how they were served.
type tally struct{ served, refused, reset, late, short, other int64 }

func (t tally) since(b tally) tally {
	return tally{t.served - b.served, t.refused - b.refused, t.reset - b.reset, t.late - b.late, t.short - b.short, t.other - b.other}
}

func (t tally) String() string {
	return fmt.Sprintf("served %d, refused %d, reset %d, not answered in time %d, answered otherwise %d, otherwise not %d", t.served, t.refused, t.reset, t.late, t.short, t.other)
}

// load are the clients of all relays.
type load struct {
	s      *settings
	f      *fleet
	roots  *tls.Config
	done   chan struct{}
	all    sync.WaitGroup
	counts func() tally
	add    func(error)
}

// patience is how long a client waits for an answer.
const patience = 3 * time.Second

// maxOpen bounds the clients of one relay at the same time.
const maxOpen = 150

var errOtherwise = errors.New("answered otherwise")

func startLoad(s *settings, f *fleet, m *members) *load {
	l := &load{s: s, f: f, roots: &tls.Config{RootCAs: m.roots}, done: make(chan struct{})}
	var served, refused, reset, late, short, other atomic.Int64
	l.counts = func() tally {
		return tally{served.Load(), refused.Load(), reset.Load(), late.Load(), short.Load(), other.Load()}
	}
	l.add = func(err error) {
		var timeout net.Error
		switch {
		case err == nil:
			served.Add(1)
		case errors.Is(err, syscall.ECONNREFUSED):
			refused.Add(1)
		case errors.Is(err, syscall.ECONNRESET):
			reset.Add(1)
		case errors.As(err, &timeout) && timeout.Timeout():
			late.Add(1)
		case errors.Is(err, errOtherwise), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			short.Add(1)
		default:
			other.Add(1)
		}
	}
	begun := time.Now()
	for i, r := range f.relays {
		l.all.Go(func() { l.clients(r, rand.New(rand.NewPCG(s.seed, uint64(i))), begun) })
		l.all.Go(func() { l.watch(r) })
	}
	return l
}

func (l *load) stop() {
	close(l.done)
	l.all.Wait()
}

// clients makes clients come to a relay: at random, some of them together, in numbers that change slowly for all relays and
// faster for this one.
func (l *load) clients(r *relay, random *rand.Rand, begun time.Time) {
	own, next := 1.0, time.Now()
	open := make(chan struct{}, maxOpen)
	for {
		select {
		case <-l.done:
			return
		case <-time.After(time.Until(next)):
		}
		common := 1 + 0.6*math.Sin(2*math.Pi*time.Since(begun).Seconds()/90)
		own = min(max(own*math.Exp(random.NormFloat64()*0.02), 0.4), 2.5)
		together := 1
		if random.IntN(10) == 0 {
			together = 1 + random.IntN(6)
		}
		const onAverage = 1.25 // together
		next = next.Add(time.Duration(random.ExpFloat64() * onAverage / (l.s.rate * common * own) * float64(time.Second)))
		if time.Since(next) > time.Second {
			next = time.Now() // a busy machine; those clients do not come
		}
		for range together {
			select {
			case open <- struct{}{}:
			default:
				continue
			}
			client := l.client(r, random)
			l.all.Go(func() {
				defer func() { <-open }()
				l.add(client())
			})
		}
	}
}

// watch connects and leaves, as what is in front of a relay does to see whether it listens.
func (l *load) watch(r *relay) {
	for {
		select {
		case <-l.done:
			return
		case <-time.After(time.Second):
		}
		if c, err := net.DialTimeout("tcp", r.at("WEB"), patience); err == nil {
			c.Close()
		}
	}
}

// client returns what one client does.
func (l *load) client(r *relay, random *rand.Rand) func() error {
	sizes := make([]int, 1+random.IntN(3))
	pauses := make([]time.Duration, len(sizes))
	for i := range sizes {
		sizes[i] = min(int(300*math.Pow(random.Float64(), -1/1.2)), 200_000)
		if random.IntN(8) == 0 {
			sizes[i] = 200_000 + random.IntN(200_000)
		}
		pauses[i] = time.Duration(random.IntN(150)) * time.Millisecond
	}
	switch n := random.IntN(10); {
	case n < 6:
		return func() error { return ask(r.at("WEB"), nil, sizes, pauses) }
	case n < 7:
		return func() error { return ask(r.at("SNI"), l.named("a.test"), sizes, pauses) }
	case n < 8:
		return func() error { return ask(r.at("SNI"), l.named("b.test"), sizes, pauses) }
	case n < 9:
		return func() error { return ask(r.at("TLS"), l.named("tls.test"), sizes, pauses) }
	}
	return func() error { return askDatagram(r.at("DNS")) }
}

func (l *load) named(name string) *tls.Config {
	c := l.roots.Clone()
	c.ServerName = name
	return c
}

// ask sends requests on one connection, and reads the answers.
func ask(at string, config *tls.Config, sizes []int, pauses []time.Duration) error {
	c, err := net.DialTimeout("tcp", at, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	if config != nil {
		c = tls.Client(c, config)
		defer c.Close()
	}
	for i, n := range sizes {
		c.SetDeadline(time.Now().Add(patience))
		if _, err := fmt.Fprintf(c, "GET %d\n", n); err != nil {
			return err
		}
		got, err := io.CopyN(io.Discard, c, int64(n))
		if errors.Is(err, io.EOF) && got > 0 {
			return errOtherwise
		}
		if err != nil {
			return err
		}
		time.Sleep(pauses[i])
	}
	return nil
}

func askDatagram(at string) error {
	c, err := net.Dial("udp", at)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(make([]byte, 40)); err != nil {
		return err
	}
	n, err := c.Read(make([]byte, 2000))
	if err == nil && n != 80 {
		err = errOtherwise
	}
	return err
}
