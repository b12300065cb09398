package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// The error of Copy between sockets is the one that Read of the source or Write of the destination returns.
func TestErrorIsThatOfReadOrWrite(t *testing.T) {
	past := time.Unix(1, 0)
	eachLine(t, lines[:4], func(t *testing.T, r *rig) {
		r.from.Write(pattern().At(0, 1))
		for _, c := range []struct {
			name string
			src  io.Reader
			fail func()
			same func() error // what fails in the same way
		}{
			{"write deadline", r.src, func() { r.dst.SetWriteDeadline(past) }, func() error { _, err := r.dst.Write([]byte{0}); return err }},
			{"write deadline of a file", openFile(t, 10), func() {}, func() error { _, err := r.dst.Write([]byte{0}); return err }},
			{"read deadline", r.src, func() { r.src.SetReadDeadline(past) }, func() error { _, err := r.src.Read([]byte{0}); return err }},
			{"source closed", r.src, func() { r.src.Close() }, func() error { _, err := r.src.Read([]byte{0}); return err }},
			{"destination closed", openFile(t, 10), func() { r.dst.Close() }, func() error { _, err := r.dst.Write([]byte{0}); return err }},
		} {
			c.fail()
			_, err := Copy(r.dst, c.src)
			if u, ok := err.(*UndeliveredError); ok {
				err = u.Err
			}
			if want := c.same(); !reflect.DeepEqual(err, want) {
				t.Errorf("%s: %#v, want %#v", c.name, err, want)
			}
		}
	})
}

// openFile returns a file of size bytes.
func openFile(t *testing.T, size int) *os.File {
	f, err := os.Create(t.TempDir() + "/file")
	if err == nil {
		_, err = f.WriteAt(pattern().At(0, size), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A file that is closed meanwhile ends Copy, and what was sent of it has arrived.
func TestFileClosed(t *testing.T) {
	r := newRig(t, line{tcp, tcp})
	r.shrink()
	f := openFile(t, 0)
	if err := f.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.n, r.err = r.cfg.CopyLive(r.dst, f, &r.live)
	}()
	testwait.Until(t, "some is sent", func() bool { return r.live.Up().Written > 0 })
	f.Close()
	go func() {
		<-r.done
		r.dst.Close()
	}()
	got, err := io.ReadAll(r.to)
	if n, err := r.wait(t); n != int64(len(got)) || n == 64<<20 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("Copy = %d, %v; %d bytes arrived", n, err, len(got))
	}
	if err != nil {
		t.Error(err)
	}
}

// lying is a reader whose Read returns n.
type lying struct {
	net.Conn
	n int
}

func (l lying) Read(p []byte) (int, error) {
	if l.n > 0 {
		return len(p) + l.n, nil
	}
	return l.n, nil
}

// A Read that returns what cannot be, or nothing for ever, is an error, also on a goroutine of Relay, where nobody
// could recover from a panic.
func TestInvalidRead(t *testing.T) {
	for n, want := range map[int]error{1: errInvalidRead, -1: errInvalidRead, 0: io.ErrNoProgress} {
		near, far := net.Pipe()
		a, b := net.Pipe()
		src := lying{near, n}
		if n, err := Copy(struct{ io.Writer }{io.Discard}, src); n != 0 || !errors.Is(err, want) {
			t.Errorf("Read returns %d: Copy = %d, %v", src.n, n, err)
		}
		for _, pair := range [][2]net.Conn{{src, a}, {a, src}} {
			r, err := Relay(pair[0], pair[1])
			if !errors.Is(err, want) || r.Up.Written+r.Down.Written != 0 {
				t.Errorf("Read returns %d: Relay = %+v, %v", src.n, r, err)
			}
		}
		for _, c := range []net.Conn{near, far, a, b} {
			c.Close()
		}
	}
	slow := iotest.OneByteReader(&hesitant{})
	if n, err := Copy(struct{ io.Writer }{io.Discard}, slow); n != 5 || err != nil {
		t.Errorf("a reader that hesitates for less: %d, %v", n, err)
	}
}

// hesitant is a reader of five bytes, before each of which Read returns nothing 99 times.
type hesitant struct{ calls int }

func (h *hesitant) Read(p []byte) (int, error) {
	h.calls++
	switch {
	case h.calls > 500:
		return 0, io.EOF
	case h.calls%emptyReads == 0:
		p[0] = 'x'
		return 1, nil
	}
	return 0, nil
}
