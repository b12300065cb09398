package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/splice"
)

// copier is io.Copy or splice.Copy.
type copier func(dst io.Writer, src io.Reader) (int64, error)

// wire is what a copy runs on: it copies from src to dst. from is the far end of src, to that of
// dst.
type wire struct {
	*testing.T
	copy               copier
	from, src, dst, to net.Conn
	said               []string
}

// run copies, and returns the outcome.
func (w *wire) run() {
	w.Helper()
	n, err := w.copy(w.dst, w.src)
	w.said = append(w.said, fmt.Sprintf("copied %d, %s", n, class(err)))
}

// feed writes n bytes to the source in the background, and then calls the function.
func (w *wire) feed(n int, then func()) (fed chan struct{}) {
	fed = make(chan struct{})
	go func() {
		defer close(fed)
		w.from.Write(bytes.Repeat([]byte("penstock"), n/8+1)[:n])
		then()
	}()
	return fed
}

// collect counts what arrives until the other side ends; the channel delivers the outcome.
func (w *wire) collect() chan string {
	got := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(w.to)
		whole := bytes.Equal(b, bytes.Repeat([]byte("penstock"), len(b)/8+1)[:len(b)])
		got <- fmt.Sprintf("arrived %d, in order %t, %s", len(b), whole, class(err))
	}()
	return got
}

// whole copies n bytes to the end of the stream.
func (w *wire) whole(n int) {
	w.Helper()
	fed, got := w.feed(n, func() { closeWrite(w.from) }), w.collect()
	w.run()
	<-fed
	closeWrite(w.dst)
	w.said = append(w.said, <-got)
}

func closeWrite(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite() }

// limited is a connection from which only n more bytes can be read: an io.LimitedReader with the
// methods of a connection.
type limited struct {
	net.Conn
	r io.LimitedReader
}

func (l *limited) Read(b []byte) (int, error) { return l.r.Read(b) }

var copyStories = []struct {
	name string
	play func(w *wire)
}{
	{"nothing", func(w *wire) { w.whole(0) }},
	{"a byte", func(w *wire) { w.whole(1) }},
	{"a message", func(w *wire) { w.whole(1000) }},
	{"bulk", func(w *wire) { w.whole(3<<20 + 5) }},
	{"half-close: the other direction goes on", func(w *wire) {
		w.whole(100)
		w.to.Write([]byte("back"))
		b := make([]byte, 4)
		_, err := io.ReadFull(w.dst, b)
		w.said = append(w.said, string(b), class(err))
	}},
	{"the source is left open, and so is the destination", func(w *wire) {
		closeWrite(w.from)
		w.run()
		_, err := w.dst.Write([]byte("x"))
		_, err2 := w.src.Write([]byte("x"))
		w.said = append(w.said, class(err), class(err2))
	}},
	{"source closed before", func(w *wire) { w.src.Close(); w.run() }},
	{"destination closed before", func(w *wire) {
		w.from.Write([]byte("x"))
		w.dst.Close()
		w.run()
	}},
	{"destination shut before", func(w *wire) {
		w.from.Write([]byte("x"))
		closeWrite(w.dst)
		w.run()
	}},
	{"source shut for reading", func(w *wire) {
		w.src.(interface{ CloseRead() error }).CloseRead()
		w.run()
	}},
	{"source closed meanwhile", func(w *wire) {
		fed := w.feed(0, func() { w.src.Close() })
		w.run()
		<-fed
	}},
	{"source resets", func(w *wire) {
		if tcp, ok := w.from.(*net.TCPConn); ok {
			tcp.SetLinger(0)
			tcp.Close()
			w.run()
		}
	}},
	{"read deadline passed", func(w *wire) {
		w.from.Write([]byte("x"))
		w.src.SetReadDeadline(time.Unix(1, 0))
		w.run()
		w.src.SetReadDeadline(time.Time{})
		w.whole(8)
	}},
	{"read deadline passes, and the stream goes on", func(w *wire) {
		fed := w.feed(8, func() {
			io.ReadFull(w.to, make([]byte, 8)) // so that the copy has moved them
			w.src.SetReadDeadline(time.Unix(1, 0))
		})
		w.run()
		<-fed
		w.src.SetReadDeadline(time.Time{})
		w.whole(1 << 16)
	}},
	{"write deadline passed", func(w *wire) {
		w.from.Write([]byte("x"))
		w.dst.SetWriteDeadline(time.Unix(1, 0))
		w.run()
	}},
	{"limited", func(w *wire) {
		w.from.Write([]byte("penstockpenstock"))
		src := w.src
		w.src = &limited{src, io.LimitedReader{R: src, N: 12}}
		w.run()
		b := make([]byte, 4)
		_, err := io.ReadFull(src, b)
		w.said = append(w.said, string(b), class(err))
	}},
	{"limited to nothing", func(w *wire) {
		w.src = &limited{w.src, io.LimitedReader{R: w.src}}
		w.run()
	}},
}

// TestCopy compares splice.Copy with io.Copy.
func TestCopy(t *testing.T) {
	testnet.CheckLeaks(t)
	plain := &splice.Config{NoSplice: true}
	for _, p := range pairs {
		for name, ours := range map[string]copier{"any": splice.Copy, "copy": plain.Copy} {
			for _, story := range copyStories {
				t.Run(fmt.Sprintf("src=%s/dst=%s/path=%s/%s", p[0], p[1], name, story.name), func(t *testing.T) {
					play := func(c copier) []string {
						w := &wire{T: t, copy: c}
						w.from, w.src = testnet.Pair(t, p[0])
						w.dst, w.to = testnet.Pair(t, p[1])
						for _, c := range []net.Conn{w.from, w.src, w.dst, w.to} {
							c.SetDeadline(time.Now().Add(patience))
						}
						story.play(w)
						return w.said
					}
					wantSame(t, play(ours), play(io.Copy))
				})
			}
		}
	}
}
