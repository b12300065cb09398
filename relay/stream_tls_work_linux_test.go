package relay

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

// steered is a connection of which a test sees each write before it is made.
type steered struct {
	net.Conn
	before func(n int) // of the write with number n
	writes int
	gather bool // writes wait in held
	held   []byte
}

func (s *steered) Write(p []byte) (int, error) {
	if s.gather {
		s.held = append(s.held, p...)
		return len(p), nil
	}
	s.writes++
	if s.before != nil {
		s.before(s.writes)
	}
	return s.Conn.Write(p)
}

// steeredEnds are the ends of a flow of which both sides have TLS.
func steeredEnds(t *testing.T, r *rig, before func(c net.Conn, n int)) (ends [2]*tls.Conn, wires [2]*steered) {
	t.Helper()
	x := &encryption{terminate: true, originate: true}
	s := newServer(t, "tcp4")
	for side := range wires {
		w := new(steered)
		if before != nil {
			w.before = func(n int) { before(w.Conn, n) }
		}
		wires[side] = w
	}
	wires[0].Conn = dial(t, r.listen("tcp4", x.config(), s.addr))
	ends[0] = tls.Client(wires[0], clientTLS())
	ready := make(chan error, 1)
	go func() { ready <- ends[0].Handshake() }()
	wires[1].Conn = s.accept(t)
	ends[1] = tls.Server(wires[1], serverTLS(0))
	for _, c := range wires {
		c.SetDeadline(time.Now().Add(patience))
	}
	if err := ends[1].Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return ends, wires
}

// Records with a byte each, which come at once, are read in several turns, and none is forgotten between them.
func TestTLSSmallRecords(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	ends, wires := steeredEnds(t, r, nil)
	text := bytes.Repeat([]byte("a text"), 400)
	for side, w := range wires {
		w.gather = true
		for i := range text {
			if _, err := ends[side].Write(text[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		w.gather = false
		if _, err := w.Write(w.held); err != nil {
			t.Fatal(err)
		}
		hear(t, ends[1-side], string(text))
	}
	ends[0].Close()
	ends[1].Close()
	r.expect(CauseEnd)
}

// A pending signal stops a read at an urgent byte. The engine reads again, because no event comes for the bytes behind it.
func TestTLSUrgent(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	ends, wires := steeredEnds(t, r, func(c net.Conn, n int) {
		r.k.Fail(testkernel.Recv, sys.EAGAIN, 1)
		if err := testkernel.Urgent(c, '!'); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		for side := range ends {
			if _, err := io.WriteString(ends[side], "a record"); err != nil {
				t.Fatal(err)
			}
			hear(t, ends[1-side], "a record")
		}
	}
	if wires[0].writes < 5 || wires[1].writes < 4 {
		t.Errorf("%d and %d writes", wires[0].writes, wires[1].writes)
	}
	ends[0].Close()
	ends[1].Close()
	r.expect(CauseEnd)
}

// What a connection would be given to the kernel with is forgotten if its flow cannot be settled: here nobody keeps any.
func TestTLSForgetsSecrets(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	a, b := (&encryption{terminate: true, kernel: true}).ends(t, r, "tcp4", "tcp4")
	if _, err := io.WriteString(a, "a text"); err != nil {
		t.Fatal(err)
	}
	hear(t, b, "a text")
	r.e.each(func(s *streams) {
		s.slab.Each(func(f *streamFlow) {
			if ever, _ := f.tls.conn[sideClient].Givable(); ever {
				t.Error("it could be given away")
			}
		})
	})
	a.Close()
	b.Close()
	r.expect(CauseEnd)
}
