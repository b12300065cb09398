package sys

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/internal/testwait"
	"golang.org/x/sys/unix"
)

// TestMessageLayout: a Message is what the kernel takes it for.
func TestMessageLayout(t *testing.T) {
	var m Message
	var h mmsghdr
	if unsafe.Sizeof(m.hdr) != unsafe.Sizeof(h.hdr) || unsafe.Offsetof(m.n) != unsafe.Offsetof(h.n) ||
		unsafe.Offsetof(m.hdr.iov) != unsafe.Offsetof(h.hdr.Iov) || unsafe.Offsetof(m.hdr.iovlen) != unsafe.Offsetof(h.hdr.Iovlen) ||
		unsafe.Offsetof(m.hdr.control) != unsafe.Offsetof(h.hdr.Control) || unsafe.Offsetof(m.hdr.flags) != unsafe.Offsetof(h.hdr.Flags) ||
		unsafe.Offsetof(m.len)-unsafe.Offsetof(m.base) != unsafe.Offsetof(unix.Iovec{}.Len) {
		t.Errorf("%+v is not a struct mmsghdr", m)
	}
	if unsafe.Sizeof(uintptr(0)) == 8 && unsafe.Sizeof(m) != MessageSize {
		t.Errorf("%d bytes, not %d", unsafe.Sizeof(m), MessageSize)
	}
}

// TestOne: RecvOne and SendOne do what Recv and Send do, and their messages tell it.
func TestOne(t *testing.T) {
	k := Linux{}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			a, b := streamPair(t, network)
			fd, e := Memfd("penstock-test", 4096)
			if e != 0 {
				t.Fatal(e)
			}
			closeLater(t, fd)
			mem, e := Map(fd, 4096)
			if e != 0 {
				t.Fatal(e)
			}
			defer Unmap(mem)
			m := Cast[Message](mem[128:])
			for i := range mem { // what a dead process may have left
				mem[i] = 0xff
			}
			told := func(want int, wantOK bool) {
				t.Helper()
				if n, ok := m.Moved(); ok != wantOK || ok && n != want {
					t.Errorf("the message tells %d, %v, want %d, %v", n, ok, want, wantOK)
				}
			}
			buf := make([]byte, 1<<16)
			if _, e := k.RecvOne(b, m, buf); e != EAGAIN {
				t.Errorf("nothing there: %v", e)
			}
			told(0, false)
			if n, e := k.SendOne(a, m, []byte("some bytes")); n != 10 || e != 0 {
				t.Errorf("sent %d, %v", n, e)
			}
			told(10, true)
			testwait.Until(t, "bytes", func() bool { n, _ := Linux{}.ReadQueued(b); return n == 10 })
			if n, e := k.RecvOne(b, m, buf[:4]); n != 4 || e != 0 || string(buf[:n]) != "some" {
				t.Errorf("received %q, %v", buf[:n], e)
			}
			told(4, true)
			if n, e := k.RecvOne(b, m, buf); n != 6 || e != 0 || string(buf[:n]) != " bytes" {
				t.Errorf("received %q, %v", buf[:n], e)
			}
			told(6, true)
			sent := 0
			for {
				n, e := k.SendOne(a, m, buf)
				if e == EAGAIN {
					told(0, false)
					break
				}
				if e != 0 {
					t.Fatal(e)
				}
				told(n, true)
				sent += n
			}
			k.ShutdownWrite(a)
			testwait.Until(t, "all bytes", func() bool {
				n, e := k.RecvOne(b, m, buf)
				if e == 0 {
					told(n, true)
				} else if e != EAGAIN {
					t.Fatal(e)
				}
				sent -= n
				return e == 0 && n == 0
			})
			told(0, true)
			if sent != 0 {
				t.Errorf("%d bytes are missing", sent)
			}
			if e := k.ShutdownBoth(b); e != 0 {
				t.Fatal(e)
			}
			testwait.Until(t, "a reset", func() bool {
				_, e = k.SendOne(b, m, buf)
				return e == EPIPE || e == ECONNRESET
			})
			told(0, false)
			if _, e := k.RecvOne(b, m, nil); e != EINVAL {
				t.Errorf("received into nothing: %v", e)
			}
			if !bytes.Equal(mem[:128], bytes.Repeat([]byte{0xff}, 128)) {
				t.Error("memory beside the message was written to")
			}
		})
	}
}

// TestOnePassed: descriptors that come along are dropped, and the bytes are received.
func TestOnePassed(t *testing.T) {
	a, b := streamPair(t, "unix")
	var buf FDBuffer
	before, e := Dup(a)
	if e != 0 {
		t.Fatal(e)
	}
	unix.Close(before)
	if e := buf.Send(a, []byte("bytes"), []int{a, b, a}); e != 0 {
		t.Fatal(e)
	}
	var m Message
	p := make([]byte, 100)
	if n, e := (Linux{}).RecvOne(b, &m, p); string(p[:n]) != "bytes" || e != 0 {
		t.Errorf("received %q, %v", p[:n], e)
	}
	after, e := Dup(a)
	if e != 0 {
		t.Fatal(e)
	}
	unix.Close(after)
	if after != before {
		t.Errorf("the next descriptor is %d, and was %d", after, before)
	}
}

func TestOneAllocs(t *testing.T) {
	a, b := streamPair(t, "unix")
	m, p := new(Message), make([]byte, 100)
	var k Kernel = Linux{}
	if n := testing.AllocsPerRun(100, func() {
		k.SendOne(a, m, p)
		k.RecvOne(b, m, p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// streamPair returns two connected stream sockets.
func streamPair(t testing.TB, network string) (a, b int) {
	t.Helper()
	if network == "tcp" {
		return connected(t, 0)
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, p[0])
	closeLater(t, p[1])
	return p[0], p[1]
}

func BenchmarkOne(b *testing.B) {
	k := Linux{}
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []int{100, 16 << 10} {
			for _, call := range []string{"plain", "one"} {
				b.Run(fmt.Sprintf("net=%s/size=%d/call=%s", network, size, call), func(b *testing.B) {
					x, y := streamPair(b, network)
					p, m := make([]byte, size), new(Message)
					b.SetBytes(int64(size))
					for b.Loop() {
						if call == "one" {
							k.SendOne(x, m, p)
							for n := 0; n < size; {
								i, _ := k.RecvOne(y, m, p)
								n += i
							}
							continue
						}
						k.Send(x, p)
						for n := 0; n < size; {
							i, _ := k.Recv(y, p)
							n += i
						}
					}
				})
			}
		}
	}
}

func BenchmarkTCPCounts(b *testing.B) {
	x, _ := connected(b, 0)
	for b.Loop() {
		if _, e := (Linux{}).TCPCounts(x); e != 0 {
			b.Fatal(e)
		}
	}
}
