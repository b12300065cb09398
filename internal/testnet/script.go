package testnet

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Script says what one end of a connection does. Sending and receiving run at
// the same time; the end closes its connection when both are over.
//
// The zero Script half-closes at once and accepts no byte.
type Script struct {
	// Send is how many bytes of the pattern of SendSeed are written, SendChunk at a time (default
	// 64 KiB, at most MaxChunk). Negative means until writing fails. Afterwards the end
	// half-closes, unless Hold is set.
	Send      int64
	SendSeed  uint64
	SendChunk int
	Hold      bool

	// Recv is how many bytes of the pattern of RecvSeed are expected before EOF, read at most
	// RecvChunk at a time (default 64 KiB). Negative means any number.
	Recv      int64
	RecvSeed  uint64
	RecvChunk int

	// Reset closes with a reset (TCP) once Send bytes are written, and does not
	// wait for the other side's EOF.
	Reset bool

	// Echo writes back what it reads, and half-closes after EOF; Discard only
	// reads. Both ignore the fields above except RecvChunk.
	Echo, Discard bool
}

// Report is how a script ended.
type Report struct {
	Sent, Received int64
	Err            string // the first error; empty if everything went as scripted
	// Done is the time from the start until the last byte was received.
	Done time.Duration
}

// Play plays s on c and closes c. It returns when the script is over, at the latest when c fails.
func Play(c net.Conn, s Script) Report {
	defer c.Close()
	start := time.Now()
	var r Report
	if s.Echo || s.Discard {
		echo(c, s, &r)
		r.Done = time.Since(start)
		return r
	}
	var serr, rerr error
	var wg sync.WaitGroup
	if !s.Reset {
		wg.Go(func() {
			r.Received, rerr = receive(c, s)
			r.Done = time.Since(start)
		})
	}
	r.Sent, serr = send(c, s)
	if s.Reset {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		c.Close()
	}
	wg.Wait()
	if s.Send < 0 {
		serr = nil // the script was to end with a failure
	}
	if err := errors.Join(serr, rerr); err != nil {
		r.Err = err.Error()
	}
	return r
}

func send(c net.Conn, s Script) (n int64, err error) {
	chunk := min(orDefault(s.SendChunk), MaxChunk)
	if s.Send != 0 {
		p := NewPattern(s.SendSeed)
		for s.Send < 0 || n < s.Send {
			size := chunk
			if s.Send > 0 {
				size = int(min(int64(chunk), s.Send-n))
			}
			m, err := c.Write(p.At(n, size))
			n += int64(m)
			if err != nil {
				return n, err
			}
		}
	}
	if s.Hold || s.Reset {
		return n, nil
	}
	return n, closeWrite(c)
}

func receive(c net.Conn, s Script) (n int64, err error) {
	buf := make([]byte, orDefault(s.RecvChunk))
	var p *Pattern
	for {
		m, err := c.Read(buf)
		if p == nil && m > 0 {
			p = NewPattern(s.RecvSeed)
		}
		if cerr := p.Check(n, buf[:m]); cerr != nil {
			return n, cerr
		}
		n += int64(m)
		if s.Recv >= 0 && n > s.Recv {
			return n, errors.New("more bytes than expected")
		}
		if err == io.EOF {
			if n < s.Recv {
				return n, io.ErrUnexpectedEOF
			}
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

func echo(c net.Conn, s Script, r *Report) {
	buf := make([]byte, orDefault(s.RecvChunk))
	for {
		n, err := c.Read(buf)
		r.Received += int64(n)
		if n > 0 && s.Echo {
			m, werr := c.Write(buf[:n])
			r.Sent += int64(m)
			if werr != nil {
				r.Err = werr.Error()
				return
			}
		}
		if err == io.EOF {
			err = closeWrite(c)
			if err == nil {
				return
			}
		}
		if err != nil {
			r.Err = err.Error()
			return
		}
	}
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

func orDefault(chunk int) int {
	if chunk <= 0 {
		return 64 << 10
	}
	return chunk
}
