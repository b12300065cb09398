package splice

import (
	"bufio"
	"bytes"
	"io"
	"testing"
)

// outer wraps a wrapper.
type outer struct{ *reader }

// TestReadAhead: what a wrapper has read comes first, once, and the socket
// inside is spliced all the same.
func TestReadAhead(t *testing.T) {
	for _, l := range []line{{tcp, tcp}, {tcp, unix}, {unix, tcp}, {unix, unix}, {pipe, tcp}, {tcp, pipe}} {
		for _, ahead := range []int{0, 1, 100_000} {
			t.Run(l.String(), func(t *testing.T) {
				r := newRig(t, l)
				w := &reader{Conn: r.src, ahead: bytes.Clone(pattern().At(0, ahead))}
				r.src, r.sent = w, int64(ahead)
				r.start(t)
				r.read(t, ahead)
				r.bulk(t, 3<<20)
				endWriting(r.from)
				n, err := r.wait(t)
				if n != int64(ahead+3<<20) || err != nil {
					t.Errorf("Copy = %d, %v", n, err)
				}
				got := r.live.Up()
				if got.Read != n || got.Written != n || got.Spliced > n-int64(ahead) {
					t.Errorf("%+v after %d bytes", got, n)
				}
				l.path(t, got)
				if len(w.ahead) != 0 {
					t.Error("the wrapper still has what was delivered")
				}
			})
		}
	}
}

// TestReadAheadNested: what the outer wrapper holds came earlier.
func TestReadAheadNested(t *testing.T) {
	r := newRig(t, line{tcp, tcp})
	inner := &reader{Conn: r.src, ahead: bytes.Clone(pattern().At(1000, 500))}
	r.src, r.sent = &reader{Conn: inner, ahead: bytes.Clone(pattern().At(0, 1000))}, 1500
	r.start(t)
	r.write(t, 10)
	endWriting(r.from)
	r.read(t, 1510)
	if n, err := r.wait(t); n != 1510 || err != nil {
		t.Errorf("Copy = %d, %v", n, err)
	}
}

// TestReadAheadOfDestination: Copy has no use for it, and leaves it.
func TestReadAheadOfDestination(t *testing.T) {
	r := newRig(t, line{tcp, unix})
	w := &reader{Conn: r.dst, ahead: []byte("theirs")}
	r.dst = w
	r.start(t)
	r.bulk(t, 1<<20)
	endWriting(r.from)
	if n, err := r.wait(t); n != 1<<20 || err != nil {
		t.Errorf("Copy = %d, %v", n, err)
	}
	if string(w.ahead) != "theirs" {
		t.Errorf("dst's own %q became %q", "theirs", w.ahead)
	}
}

// TestReadAheadLost: what was read ahead counts as undelivered too.
func TestReadAheadLost(t *testing.T) {
	for _, l := range []line{{tcp, tcp}, {unix, unix}, {pipe, tcp}} {
		r := newRig(t, l)
		r.src = &reader{Conn: r.src, ahead: []byte("peeked")}
		r.dst.Close()
		n, err := Copy(r.dst, r.src)
		if n != 0 || class(err) != "closed" || lost(err) != 6 {
			t.Errorf("%v: Copy = %d, %v", l, n, err)
		}
	}
}

// TestReadAheadInBothDirections: a Relay delivers both.
func TestReadAheadInBothDirections(t *testing.T) {
	d := newDuplex(t, tcp, unix)
	d.a = outer{&reader{Conn: d.a, ahead: bytes.Clone(pattern().At(0, 70_000))}}
	d.b = &reader{Conn: d.b, ahead: bytes.Clone(pattern().At(0, 3))}
	d.start(t)
	if err := runBoth(func() error { return expect(d.farB, 70_000) }, func() error { return expect(d.farA, 3) }); err != nil {
		t.Error(err)
	}
	endWriting(d.farA)
	endWriting(d.farB)
	r, err := d.wait(t)
	if err != nil || r.Outcome != OutcomeEnd || r.Up.Written != 70_000 || r.Down.Written != 3 {
		t.Errorf("Relay = %+v, %v", r, err)
	}
	// The end was passed on through the wrappers.
	for _, c := range []*duplex{d} {
		if err := runBoth(func() error { return expectEnd(c.farA) }, func() error { return expectEnd(c.farB) }); err != nil {
			t.Error(err)
		}
	}
}

// A Conn delivers what its bufio.Reader has read, once, and then what the connection inside receives: spliced, where
// that is a socket, and by Read.
func TestConn(t *testing.T) {
	for _, l := range []line{{tcp, unix}, {pipe, tcp}, {tcp, pipe}} {
		t.Run(l.String(), func(t *testing.T) {
			r := newRig(t, l)
			go r.from.Write(pattern().At(0, 3000))
			head := bufio.NewReader(r.src)
			if b, err := head.Peek(3000); err != nil || pattern().Check(0, b) != nil {
				t.Fatal(err)
			}
			head.Discard(1000)
			r.src, r.sent, r.received = NewConn(r.src, head), 3000, 1000
			r.start(t)
			r.read(t, 2000)
			r.bulk(t, 3<<20)
			endWriting(r.from)
			if n, err := r.wait(t); n != 2000+3<<20 || err != nil {
				t.Errorf("Copy = %d, %v", n, err)
			}
			l.path(t, r.live.Up())
		})
	}
}

func TestConnRead(t *testing.T) {
	near, far := tcp.open(t)
	far.Write(pattern().At(0, 3000))
	far.Close()
	head := bufio.NewReader(near)
	head.Peek(3000)
	c := NewConn(near, head)
	first := make([]byte, 1000)
	if n, err := io.ReadFull(c, first); err != nil || pattern().Check(0, first) != nil {
		t.Errorf("%d, %v", n, err)
	}
	if c.Unwrap() != near {
		t.Error("Unwrap does not return the connection inside")
	}
	taken := c.TakeRead()
	if again := c.TakeRead(); len(taken) != 2000 || again != nil {
		t.Errorf("TakeRead returns %d bytes, then %d", len(taken), len(again))
	}
	if rest, err := io.ReadAll(c); len(rest) != 0 || err != nil {
		t.Errorf("%d bytes after TakeRead, %v", len(rest), err)
	}
	if err := pattern().Check(1000, taken); err != nil {
		t.Errorf("what was taken has changed: %v", err)
	}
	if n, err := NewConn(near, nil).Read(first); n != 0 || err != io.EOF {
		t.Errorf("without a bufio.Reader: %d, %v", n, err)
	}
}
