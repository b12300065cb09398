//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/proc"
)

const (
	messageSize = 64
	pace        = 20 * time.Millisecond // between an echo and the next message of a flow
	lossAfter   = 200 * time.Millisecond
)

// upstream sends back what it gets. An echoed datagram ends with the port that it came from.
type upstream struct {
	stream   net.Listener
	datagram *net.UDPConn
}

func newUpstream() (*upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	go echo.Serve(l, func(c net.Conn) {
		io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 4096))
	})
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			u.WriteToUDPAddrPort(binary.BigEndian.AppendUint16(buf[:n], from.Port()), from)
		}
	}()
	return &upstream{l, u}, nil
}

// load is the traffic of a round.
type load struct {
	addr string

	marked atomic.Int64 // when the event began, in ns since began; 0: not yet
	echoed atomic.Int64 // flows that have had an echo
	began  time.Time
	done   chan struct{}
	work   sync.WaitGroup

	mu     sync.Mutex
	pauses []time.Duration // the longest of each flow that lives
	res    result
}

func newLoad(addr string) *load {
	return &load{addr: addr, began: time.Now(), done: make(chan struct{})}
}

func (l *load) mark()                    { l.marked.Store(int64(time.Since(l.began))) }
func (l *load) sinceMark() time.Duration { return time.Since(l.began) - time.Duration(l.marked.Load()) }

// sleep waits for d, or for the end, which it reports.
func (l *load) sleep(d time.Duration) bool {
	select {
	case <-l.done:
		return true
	case <-time.After(d):
		return false
	}
}

// begin opens all flows and begins with new clients.
func (l *load) begin(streams, datagrams int, every time.Duration) error {
	l.res.TCP, l.res.UDP = streams, datagrams
	for i := range streams {
		c, err := net.Dial("tcp", l.addr)
		if err != nil {
			return err
		}
		l.work.Go(func() { l.streamFlow(c, i) })
	}
	for i := range datagrams {
		at, err := netip.ParseAddrPort(l.addr)
		if err != nil {
			return err
		}
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		l.work.Go(func() { l.datagramFlow(c, i) })
	}
	l.work.Go(func() {
		for !l.sleep(every) {
			if l.marked.Load() == 0 {
				continue // only what happens after the event is of interest
			}
			l.work.Go(l.newClient)
		}
	})
	return nil
}

// established waits until each flow has had an echo, so that the event meets all of them.
func (l *load) established() error {
	return proc.Wait("each flow to have an echo", patience, func() bool { return l.echoed.Load() == int64(l.res.TCP+l.res.UDP) })
}

// end ends the load.
func (l *load) end() result {
	close(l.done)
	l.work.Wait()
	l.res.setPauses(l.pauses)
	return l.res
}

// message writes the n-th message of a flow; no two are alike.
func message(b []byte, flow, n int) []byte {
	b = b[:messageSize]
	for i := 0; i < messageSize; i += 16 {
		binary.BigEndian.PutUint64(b[i:], uint64(flow)<<32|uint64(i))
		binary.BigEndian.PutUint64(b[i+8:], uint64(n)*0x9e3779b97f4a7c15)
	}
	return b
}

// A gap is the longest time between two echoes of a flow, as far as it ended after the event.
type gap struct {
	last    time.Time
	longest time.Duration
}

func (g *gap) echo(l *load) {
	now := time.Now()
	if l.marked.Load() != 0 && !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.last = now
}

func (l *load) streamFlow(c net.Conn, id int) {
	defer c.Close()
	var g gap
	var out, in [messageSize]byte
	last := false
	for n := 0; ; n++ {
		c.SetDeadline(time.Now().Add(patience))
		_, err := c.Write(message(out[:], id, n))
		if err == nil {
			_, err = io.ReadFull(c, in[:])
		}
		if err != nil || in != out {
			l.mu.Lock()
			defer l.mu.Unlock()
			switch {
			case err == nil:
				l.res.Wrong++
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
				l.res.CleanEnds++
			case errors.Is(err, syscall.ECONNRESET):
				l.res.Resets++
			default:
				l.res.Stalled++
			}
			return
		}
		if n == 0 {
			l.echoed.Add(1)
		}
		g.echo(l)
		if last {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.res.Alive++
			l.pauses = append(l.pauses, g.longest)
			return
		}
		last = l.sleep(pace)
	}
}

// datagramFlow lives if its last message had an echo, by the same port of the relay as its first.
func (l *load) datagramFlow(c *net.UDPConn, id int) {
	defer c.Close()
	var out [messageSize]byte
	in := make([]byte, 2048)
	var first, port uint16
	lost, last, wait := 0, false, lossAfter
	for n := 0; ; n++ {
		c.Write(message(out[:], id, n)) // ECONNREFUSED is that of the datagram before
		answered := false
		c.SetReadDeadline(time.Now().Add(wait))
		for !answered {
			size, err := c.Read(in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err == nil && size == messageSize+2 && bytes.Equal(in[:messageSize], out[:]) {
				answered = true
				port = binary.BigEndian.Uint16(in[messageSize:])
				if first == 0 {
					first = port
					l.echoed.Add(1)
				}
			}
		}
		if !answered && l.marked.Load() != 0 {
			lost++
		}
		if last {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.res.DatagramsLost += lost
			if answered && port == first {
				l.res.UDPAlive++
			}
			return
		}
		if last = l.sleep(pace); last {
			wait = 10 * lossAfter
		}
	}
}

// newClient connects for one echo.
func (l *load) newClient() {
	ok := func() bool {
		c, err := net.DialTimeout("tcp", l.addr, patience)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		return echo.Ask(c, message(make([]byte, messageSize), 1<<20, 0)) == nil
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.res.New++
	if !ok {
		l.res.NewFailed++
	}
}
