//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/proc"
)

// flows are clients that talk to the upstreams through the daemon, and compare every byte that comes back.
type flows struct {
	over chan struct{}
	all  sync.WaitGroup
	list []*flow
}

// flow is a connection, or what a client sends from one UDP socket.
type flow struct {
	id        uint64
	conn      net.Conn
	exchanges atomic.Int64 // that came back
	ended     atomic.Pointer[error]
	port      uint16       // UDP: by which its upstream has seen it first
	moved     atomic.Int64 // how often that has changed
}

const (
	perKind = 10
	pause   = 200 * time.Millisecond // between two exchanges
	length  = 600                    // of what is exchanged
)

var nextFlow uint64

// begin opens connections and UDP sockets, and waits until each has exchanged something.
func begin(stream, datagram string) (*flows, error) {
	f := &flows{over: make(chan struct{})}
	for range perKind {
		for network, address := range map[string]string{"tcp": stream, "udp": datagram} {
			c, err := net.DialTimeout(network, address, patience)
			if err != nil {
				f.end()
				return nil, err
			}
			nextFlow++
			one := &flow{id: nextFlow, conn: c}
			f.list = append(f.list, one)
			exchange := one.stream
			if network == "udp" {
				exchange = one.datagram
			}
			f.all.Go(func() { one.talk(exchange, f.over) })
		}
	}
	if seen := f.look(); seen.tcp != perKind || seen.udp != perKind {
		f.end()
		return nil, fmt.Errorf("new clients: %v", seen)
	}
	return f, nil
}

// talk exchanges one thing after another until that fails or all is over.
func (f *flow) talk(exchange func(n int64) error, over chan struct{}) {
	for n := int64(0); ; n++ {
		if err := exchange(n); err != nil {
			f.ended.Store(&err)
			return
		}
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
	}
}

// stream sends the next bytes of a connection, and compares what comes back.
func (f *flow) stream(n int64) error {
	var b, scratch [length]byte
	pattern.Fill(b[:], f.id, pattern.Up, n*length)
	if _, err := f.conn.Write(b[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(f.conn, b[:]); err != nil {
		return err
	}
	if _, wrong := pattern.Compare(b[:], scratch[:], f.id, pattern.Up, n*length); wrong != nil {
		return fmt.Errorf("%w: %s", errWrong, wrong.Text)
	}
	f.exchanges.Add(1)
	return nil
}

var errWrong = errors.New("wrong bytes")

// datagram sends a datagram and waits a second for its answer, which tells the port that the upstream has seen.
func (f *flow) datagram(n int64) error {
	var b [length + 2]byte
	_, err := f.conn.Write(pattern.MakeDatagram(b[:length], f.id, uint64(n+1), pattern.Up))
	f.conn.SetReadDeadline(time.Now().Add(time.Second))
	for err == nil {
		var got int
		if got, err = f.conn.Read(b[:]); err != nil {
			break
		}
		if got != len(b) {
			return fmt.Errorf("%w: %d", errWrong, got)
		}
		id, number, _, err := pattern.ReadDatagram(b[:length])
		if err != nil || id != f.id {
			return fmt.Errorf("%w: of flow %d: %w", errWrong, id, err)
		}
		if number != uint64(n+1) {
			continue // to one before, late
		}
		port := binary.BigEndian.Uint16(b[length:])
		if f.port != 0 && f.port != port {
			f.moved.Add(1)
		}
		f.port = port
		f.exchanges.Add(1)
		return nil
	}
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // it was lost, or nobody listens just now
}

// seen is what has become of flows.
type seen struct {
	tcp, udp int // that go on; of UDP by the same port
	answered int // clients of UDP, by whatever port
	wrong    error
}

func (s seen) String() string {
	text := fmt.Sprintf("TCP: %d of %d flows go on; UDP: %d of %d", s.tcp, perKind, s.udp, perKind)
	if s.udp < s.answered {
		text += fmt.Sprintf(", and %d clients are answered", s.answered)
	}
	if s.wrong != nil {
		text += "; " + s.wrong.Error()
	}
	return text
}

// look waits until each flow has exchanged something from now on, or has ended.
func (f *flows) look() (s seen) {
	before := make([]int64, len(f.list))
	for i, one := range f.list {
		before[i] = one.exchanges.Load() + 1 // one may have begun before
	}
	end := time.Now().Add(patience)
	for i, one := range f.list {
		lives := proc.Wait("an exchange", time.Until(end), func() bool {
			return one.exchanges.Load() > before[i] || one.ended.Load() != nil
		}) == nil && one.ended.Load() == nil
		_, tcp := one.conn.(*net.TCPConn)
		switch err := one.ended.Load(); {
		case err != nil && errors.Is(*err, errWrong):
			s.wrong = *err
		case err == nil && !lives && tcp:
			s.wrong = errors.New("a TCP flow has neither gone on nor ended")
		}
		switch {
		case !lives:
		case tcp:
			s.tcp++
		default:
			s.answered++
			if one.moved.Load() == 0 {
				s.udp++
			}
		}
	}
	return s
}

// goOn returns what has become of all flows, and an error unless all go on.
func (f *flows) goOn() (string, error) {
	s := f.look()
	if s.tcp != perKind || s.udp != perKind || s.wrong != nil {
		return "", errors.New(s.String())
	}
	return s.String(), nil
}

// haveEnded returns what has become of all flows, and an error unless all have ended, and the clients of UDP are served again.
func (f *flows) haveEnded() (string, error) {
	s := f.look()
	if s.tcp != 0 || s.udp != 0 || s.answered != perKind || s.wrong != nil {
		return "", errors.New(s.String())
	}
	return s.String(), nil
}

// end closes all flows.
func (f *flows) end() {
	close(f.over)
	for _, one := range f.list {
		one.conn.Close()
	}
	f.all.Wait()
}

// upstreams are what the daemon relays to: what comes is sent back, a datagram with the port that it came from.
type upstreams struct {
	streams   net.Listener
	datagrams net.PacketConn
	all       sync.WaitGroup
}

func serve(stream, datagram string) (u *upstreams, err error) {
	u = &upstreams{}
	if u.streams, err = net.Listen("tcp", stream); err != nil {
		return nil, err
	}
	if u.datagrams, err = net.ListenPacket("udp", datagram); err != nil {
		u.streams.Close()
		return nil, err
	}
	u.all.Go(func() { echo.Serve(u.streams, func(c net.Conn) { io.Copy(c, c) }) })
	u.all.Go(func() {
		var b [2048]byte
		for {
			n, from, err := u.datagrams.ReadFrom(b[:])
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				u.datagrams.WriteTo(binary.BigEndian.AppendUint16(b[:n], uint16(from.(*net.UDPAddr).Port)), from)
			}
		}
	})
	return u, nil
}

// close returns once all connections have ended.
func (u *upstreams) close() {
	u.streams.Close()
	u.datagrams.Close()
	u.all.Wait()
}
