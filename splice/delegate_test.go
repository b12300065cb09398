package splice

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// trial is one call of io.Copy or of Copy, and how often it called Read and Write of the ends that count it. Their ReadFrom
// and WriteTo, with which they splice, send a file or hand a whole buffer on, do not count.
type trial struct {
	*testing.T
	calls int
}

type countedTCP struct {
	*net.TCPConn
	x *trial
}

func (c countedTCP) Read(p []byte) (int, error)  { c.x.calls++; return c.TCPConn.Read(p) }
func (c countedTCP) Write(p []byte) (int, error) { c.x.calls++; return c.TCPConn.Write(p) }

type countedUnix struct {
	*net.UnixConn
	x *trial
}

func (c countedUnix) Read(p []byte) (int, error)  { c.x.calls++; return c.UnixConn.Read(p) }
func (c countedUnix) Write(p []byte) (int, error) { c.x.calls++; return c.UnixConn.Write(p) }

type countedFile struct {
	*os.File
	x *trial
}

func (c countedFile) Read(p []byte) (int, error)  { c.x.calls++; return c.File.Read(p) }
func (c countedFile) Write(p []byte) (int, error) { c.x.calls++; return c.File.Write(p) }

type countedWriter struct { // has no ReadFrom
	io.Writer
	x *trial
}

func (c countedWriter) Write(p []byte) (int, error) { c.x.calls++; return c.Writer.Write(p) }

// counts returns v, which counts calls of its Read and Write.
func (x *trial) counts(v any) io.ReadWriter {
	switch v := v.(type) {
	case *net.TCPConn:
		return countedTCP{v, x}
	case *net.UnixConn:
		return countedUnix{v, x}
	case *os.File:
		return countedFile{v, x}
	}
	x.Fatalf("%T", v)
	return nil
}

const trialBytes = 1 << 20

// from returns a connection that receives trialBytes.
func (x *trial) from(k kind) net.Conn {
	near, far := k.open(x)
	var wg sync.WaitGroup
	wg.Go(func() {
		far.Write(pattern().At(0, trialBytes))
		endWriting(far)
	})
	x.Cleanup(func() { near.Close(); wg.Wait() })
	return near
}

// onDisk returns a file of trialBytes.
func (x *trial) onDisk() *os.File {
	name := filepath.Join(x.TempDir(), "file")
	if err := os.WriteFile(name, pattern().At(0, trialBytes), 0o600); err != nil {
		x.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { f.Close() })
	return f
}

// TestDelegates: wherever io.Copy splices, sends a file or hands a whole buffer on without a call of Read or Write in a
// loop, Copy does, too. A copy through 32 KiB calls each 32 times.
func TestDelegates(t *testing.T) {
	same := func(_ *trial, w io.Writer) io.Writer { return w }
	counted := func(x *trial, w io.Writer) io.Writer { return x.counts(w) }
	deaf := func(x *trial, w io.Writer) io.Writer { return countedWriter{w, x} }
	rows := []struct {
		name string
		src  func(*trial) io.Reader
		to   string // for sink
		dst  func(*trial, io.Writer) io.Writer
		want int // calls of Read and Write
	}{
		{"bufio.Reader of TCP to TCP", func(x *trial) io.Reader { return bufio.NewReader(x.counts(x.from(tcp))) }, "tcp", same, 0},
		{"bufio.Reader of TCP to hidden TCP", func(x *trial) io.Reader { return bufio.NewReader(x.from(tcp)) }, "tcp", counted, 0},
		{"bufio.Reader of TCP to Unix", func(x *trial) io.Reader { return bufio.NewReader(x.counts(x.from(tcp))) }, "unix", same, 0},
		{"bufio.Reader of Unix to hidden TCP", func(x *trial) io.Reader { return bufio.NewReader(x.from(unix)) }, "tcp", counted, 0},
		{"bufio.ReadWriter of TCP to TCP", func(x *trial) io.Reader {
			c := x.counts(x.from(tcp))
			return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
		}, "tcp", same, 0},
		{"io.MultiReader of memory and TCP to hidden TCP", func(x *trial) io.Reader {
			c := x.from(tcp)
			head := make([]byte, 100)
			if _, err := io.ReadFull(c, head); err != nil {
				x.Error(err)
			}
			return io.MultiReader(bytes.NewReader(head), c)
		}, "tcp", counted, 1}, // of the head
		{"hidden TCP to TCP", func(x *trial) io.Reader { return x.counts(x.from(tcp)) }, "tcp", same, 0},
		{"TCP to hidden TCP", func(x *trial) io.Reader { return x.from(tcp) }, "tcp", counted, 0},
		{"Unix to hidden TCP", func(x *trial) io.Reader { return x.from(unix) }, "tcp", counted, 0},
		{"limited TCP to hidden TCP", func(x *trial) io.Reader { return io.LimitReader(x.from(tcp), trialBytes) }, "tcp", counted, 0},
		{"TCP to bufio.Writer of TCP", func(x *trial) io.Reader { return x.from(tcp) }, "tcp", func(x *trial, w io.Writer) io.Writer {
			return bufio.NewWriter(x.counts(w))
		}, 0},
		{"TCP to hidden file", func(x *trial) io.Reader { return x.from(tcp) }, "file", counted, 0},
		{"hidden file to file", func(x *trial) io.Reader { return x.counts(x.onDisk()) }, "file", same, -1},
		{"file to hidden TCP", func(x *trial) io.Reader { return x.onDisk() }, "tcp", counted, 0},
		{"hidden file to TCP", func(x *trial) io.Reader { return x.counts(x.onDisk()) }, "tcp", same, 0},
		{"bytes.Reader to writer", func(*trial) io.Reader { return bytes.NewReader(pattern().At(0, trialBytes)) }, "pipe", deaf, 1},
		{"bytes.Buffer to writer", func(*trial) io.Reader { return bytes.NewBuffer(bytes.Clone(pattern().At(0, trialBytes))) }, "unix", deaf, 1},
		{"strings.Reader to hidden file", func(*trial) io.Reader { return strings.NewReader(string(pattern().At(0, trialBytes))) }, "file", counted, -1},
		{"reader without methods to writer without methods", func(*trial) io.Reader {
			return iotest.OneByteReader(bytes.NewReader(pattern().At(0, trialBytes)))
		}, "buffer", deaf, trialBytes},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var calls [2]int
			for i, copy := range []func(io.Writer, io.Reader) (int64, error){io.Copy, Copy} {
				x := &trial{T: t}
				dst, arrived := sink(t, row.to)
				to := row.dst(x, dst)
				n, err := copy(to, row.src(x))
				if w, ok := to.(*bufio.Writer); ok {
					w.Flush()
				}
				got := arrived()
				if n != trialBytes || err != nil || int64(len(got)) != n || pattern().Check(0, got) != nil {
					t.Errorf("%d: %d, %v; %d bytes arrived, %v", i, n, err, len(got), pattern().Check(0, got))
				}
				calls[i] = x.calls
			}
			t.Log("calls of Read and Write: ", calls)
			if calls[1] != calls[0] || row.want >= 0 && calls[1] != row.want {
				t.Errorf("Copy called Read and Write %d times, io.Copy %d times; want %d", calls[1], calls[0], row.want)
			}
		})
	}
}

// response is a ResponseWriter that counts calls of Write, and not of ReadFrom.
type response struct {
	http.ResponseWriter
	x *trial
}

func (r response) Write(p []byte) (int, error) { r.x.calls++; return r.ResponseWriter.Write(p) }
func (r response) ReadFrom(src io.Reader) (int64, error) {
	return r.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
}

// A file is sent to a response of package http.
func TestDelegatesResponse(t *testing.T) {
	x := &trial{T: t}
	file := x.onDisk()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := Copy(response{w, x}, file); n != trialBytes || err != nil {
			t.Errorf("Copy = %d, %v", n, err)
		}
	}))
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	server.Close()
	if err != nil || len(got) != trialBytes || pattern().Check(0, got) != nil || x.calls != 0 {
		t.Errorf("%d bytes, %v, %v; %d calls of Write", len(got), err, pattern().Check(0, got), x.calls)
	}
}

// A source that writes itself decides what a datagram is, as with io.Copy.
func TestDelegatesDatagrams(t *testing.T) {
	for name, src := range map[string]func() io.Reader{
		"bytes.Reader": func() io.Reader { return bytes.NewReader(pattern().At(0, 40_000)) },
		"bufio.Reader": func() io.Reader {
			r := bufio.NewReaderSize(bytes.NewReader(pattern().At(0, 40_000)), 50_000)
			r.Peek(1)
			return r
		},
		"io.MultiReader": func() io.Reader {
			return io.MultiReader(bytes.NewReader(pattern().At(0, 40_000)), strings.NewReader(""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			receiver, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer receiver.Close()
			c, err := net.Dial("udp", receiver.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if n, err := Copy(c, src()); n != 40_000 || err != nil {
				t.Fatalf("Copy = %d, %v", n, err)
			}
			buf := make([]byte, 64<<10)
			receiver.SetReadDeadline(time.Now().Add(patience))
			if n, _, err := receiver.ReadFrom(buf); n != 40_000 || err != nil || pattern().Check(0, buf[:n]) != nil {
				t.Errorf("the first datagram has %d bytes, %v", n, err)
			}
		})
	}
}

// What is to be counted or must not be spliced is copied, whatever the ends could do.
func TestDelegatesNothing(t *testing.T) {
	copies := map[string]func(io.Writer, io.Reader) (int64, error){
		"NoSplice": (&Config{NoSplice: true}).Copy,
		"Live":     func(dst io.Writer, src io.Reader) (int64, error) { return new(Config).CopyLive(dst, src, new(Live)) },
	}
	for name, copy := range copies {
		t.Run(name, func(t *testing.T) {
			x := &trial{T: t}
			dst, arrived := sink(t, "tcp")
			n, err := copy(dst, x.counts(x.onDisk()))
			if got := arrived(); n != trialBytes || err != nil || len(got) != trialBytes || pattern().Check(0, got) != nil {
				t.Errorf("%d, %v; %d bytes arrived", n, err, len(got))
			}
			if x.calls < trialBytes/userBuffer {
				t.Errorf("%d calls of Read", x.calls)
			}
		})
	}
}

// What a Wrapper has read comes before what the connection inside is asked to write itself, and is accounted for.
func TestDelegatesAfterReadAhead(t *testing.T) {
	x := &trial{T: t}
	c := x.from(tcp)
	head := make([]byte, 100)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	dst, arrived := sink(t, "file")
	n, err := Copy(x.counts(dst), &reader{Conn: c, ahead: head})
	if got := arrived(); n != trialBytes || err != nil || len(got) != trialBytes || pattern().Check(0, got) != nil {
		t.Errorf("Copy = %d, %v; %d bytes arrived, %v", n, err, len(got), pattern().Check(0, got))
	}
	if x.calls != 1 {
		t.Errorf("%d calls of Write, want the one of what was read ahead", x.calls)
	}
	closed := x.onDisk()
	closed.Close()
	if n, err := Copy(closed, &reader{Conn: c, ahead: head}); n != 0 || !errors.Is(err, os.ErrClosed) || lost(err) != 100 {
		t.Errorf("to a closed file: %d, %v", n, err)
	}
}
