package splice

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// TestReaders: any reader goes to any writer, as with io.Copy, with a limit and without.
func TestReaders(t *testing.T) {
	const total = 150_000
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, pattern().At(0, total), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T, offset int64) *os.File {
		f, err := os.Open(file)
		if err == nil {
			_, err = f.Seek(offset, io.SeekStart)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	conn := func(k kind, ahead int) func(t *testing.T) io.Reader {
		return func(t *testing.T) io.Reader {
			near, far := k.open(t)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				far.Write(pattern().At(int64(ahead), total-ahead))
				endWriting(far)
			}()
			t.Cleanup(func() { near.Close(); <-sent })
			if ahead > 0 {
				return &reader{Conn: near, ahead: bytes.Clone(pattern().At(0, ahead))}
			}
			return near
		}
	}
	sources := []struct {
		name string
		open func(t *testing.T) io.Reader
	}{
		{"bytes", func(*testing.T) io.Reader { return bytes.NewReader(pattern().At(0, total)) }},
		{"half", func(*testing.T) io.Reader { return iotest.HalfReader(bytes.NewReader(pattern().At(0, total))) }},
		{"dataerr", func(*testing.T) io.Reader { return iotest.DataErrReader(bytes.NewReader(pattern().At(0, total))) }},
		{"bufio", func(t *testing.T) io.Reader { return bufio.NewReader(conn(tcp, 0)(t)) }},
		{"file", func(t *testing.T) io.Reader { return open(t, 0) }},
		{"tcp", conn(tcp, 0)}, {"unix", conn(unix, 0)}, {"pipe", conn(pipe, 0)}, {"wrapper", conn(tcp, 100_000)},
	}
	sinks := []string{"tcp", "unix", "pipe", "buffer", "file"}
	for _, s := range sources {
		for _, to := range sinks {
			for _, limit := range []int64{-1, 0, 65_536, total, total + 1} {
				t.Run(fmt.Sprintf("%s-to-%s/limit=%d", s.name, to, limit), func(t *testing.T) {
					src := s.open(t)
					dst, result := sink(t, to)
					var live Live
					var cfg Config
					want, from := int64(total), src
					if limit >= 0 {
						want = min(limit, total)
						from = &io.LimitedReader{R: src, N: limit}
					}
					n, err := cfg.CopyLive(dst, from, &live)
					if n != want || err != nil {
						t.Errorf("Copy = %d, %v, want %d", n, err, want)
					}
					if l, ok := from.(*io.LimitedReader); ok && l.N != limit-want {
						t.Errorf("N is %d, want %d", l.N, limit-want)
					}
					got := result()
					if int64(len(got)) != want || pattern().Check(0, got) != nil {
						t.Errorf("%d bytes arrived, want %d: %v", len(got), want, pattern().Check(0, got))
					}
					if live.Up().Written != want && limit != 0 {
						t.Errorf("%+v", live.Up())
					}
					if s.name == "file" && (to == "tcp" || to == "unix") && want > 0 && runtime.GOOS == "linux" && live.Up().Spliced != want {
						t.Errorf("%+v: want all of the file spliced", live.Up())
					}
					// What is behind the limit is still there.
					rest, err := io.ReadAll(src)
					if int64(len(rest)) != total-want || pattern().Check(want, rest) != nil || err != nil {
						t.Errorf("%d bytes left, %v, want %d", len(rest), err, total-want)
					}
				})
			}
		}
	}
}

// sink is a writer, and what it has got once result is called.
func sink(t *testing.T, name string) (dst io.Writer, result func() []byte) {
	switch name {
	case "buffer":
		b := new(bytes.Buffer)
		return b, b.Bytes
	case "file":
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f, func() []byte {
			b, err := os.ReadFile(f.Name())
			if err != nil {
				t.Error(err)
			}
			return b
		}
	}
	near, far := map[string]kind{"tcp": tcp, "unix": unix, "pipe": pipe}[name].open(t)
	var got []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, _ = io.ReadAll(far)
	}()
	return near, func() []byte {
		near.Close()
		<-done
		return got
	}
}

// A limit on a long stream is kept while it is spliced.
func TestLimitSpliced(t *testing.T) {
	for _, l := range lines[:4] {
		t.Run(l.String(), func(t *testing.T) {
			const total, limit = 9 << 20, 5<<20 + 13
			r := newRig(t, l)
			r.feed(t, total, 1<<20)
			r.done = make(chan struct{})
			go func() {
				defer close(r.done)
				r.n, r.err = r.cfg.CopyLive(r.dst, io.LimitReader(r.src, limit), &r.live)
			}()
			r.read(t, limit)
			if n, err := r.wait(t); n != limit || err != nil {
				t.Fatalf("Copy = %d, %v", n, err)
			}
			r.path(t, r.live.Up())
			rest := make([]byte, total-limit)
			r.src.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(r.src, rest); err != nil || pattern().Check(limit, rest) != nil {
				t.Errorf("after the limit: %v, %v", err, pattern().Check(limit, rest))
			}
		})
	}
}

// What becomes of the reader after its last byte was read does not matter.
func TestLimitNeedsReaderNoMore(t *testing.T) {
	for _, l := range lines[:4] {
		t.Run(l.String(), func(t *testing.T) {
			const limit = 40 << 10
			r := newRig(t, l)
			r.shrink()
			r.dst.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			full, _ := r.dst.Write(pattern().At(0, 1<<20))
			r.dst.SetWriteDeadline(time.Time{})
			r.from.Write(pattern().At(int64(full), limit+1))
			r.done = make(chan struct{})
			go func() {
				defer close(r.done)
				r.n, r.err = r.cfg.CopyLive(r.dst, io.LimitReader(r.src, limit), &r.live)
			}()
			testwait.Until(t, "Copy has read what it may", func() bool { return r.live.Up().Read == limit })
			r.src.Close()
			r.read(t, full+limit)
			if n, err := r.wait(t); n != limit || err != nil {
				t.Errorf("Copy = %d, %v", n, err)
			}
		})
	}
}

// Files whose size the kernel does not know are copied whole.
func TestProcFile(t *testing.T) {
	const name = "/proc/self/mountinfo"
	want, err := os.ReadFile(name)
	if err != nil {
		t.Skip(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dst, result := sink(t, "tcp")
	if n, err := Copy(dst, f); err != nil || n != int64(len(want)) {
		t.Errorf("Copy = %d, %v, want %d", n, err, len(want))
	}
	if got := result(); !bytes.Equal(got, want) {
		t.Errorf("%q arrived", got)
	}
}

// A reader of a file that stops: the deadline counts, and the file is read no
// further than was delivered.
func TestFileDeadline(t *testing.T) {
	for _, k := range []kind{tcp, unix} {
		t.Run(k.name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			const size = 64 << 20
			if err := f.Truncate(size); err != nil {
				t.Fatal(err)
			}
			near, _ := k.open(t)
			near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			n, err := Copy(near, f)
			at, _ := f.Seek(0, io.SeekCurrent)
			if class(err) != "deadline" || n >= size || at-n != lost(err) {
				t.Errorf("Copy = %d, %v; the file's offset is %d", n, err, at)
			}
		})
	}
}

// Errors of readers and writers are what io.Copy would give.
func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	if n, err := Copy(io.Discard, io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken))); n != 3 || !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %d, %v", n, err)
	}
	near, far := net.Pipe()
	defer near.Close()
	far.Close()
	if n, err := Copy(near, struct{ io.Reader }{strings.NewReader("abc")}); n != 0 || !errors.Is(err, io.ErrClosedPipe) || lost(err) != 3 {
		t.Errorf("a writer that fails: %d, %v", n, err)
	}
	whole := strings.NewReader("abc") // which writes itself, and keeps what was not written
	if n, err := Copy(near, whole); n != 0 || !errors.Is(err, io.ErrClosedPipe) || lost(err) != 0 || whole.Len() != 3 {
		t.Errorf("a writer that fails: %d, %v; the reader has %d bytes", n, err, whole.Len())
	}
	if n, err := Copy(shortWriter{}, strings.NewReader("abc")); n != 1 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a short write: %d, %v", n, err)
	}
}

type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return 1, nil }
