package simkernel

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
)

// tlsScripts are those of a connection of which b has kTLS, and a sends what the script says, byte by byte. peer makes records that b can read.
var tlsScripts = map[string]func(t *testing.T, r *kernelRun, peer *Records, a, b int) string{
	"no record": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		return r.noRecord(t, a, b, []byte("GET / HTTP/1.1\r\n\r\n"))
	},
	"a record that is too long": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		return r.noRecord(t, a, b, []byte{sys.RecordData, 3, 3, 0x7f, 0xff, 1})
	},
	"a record that is too short": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		return r.noRecord(t, a, b, []byte{sys.RecordData, 3, 3, 0, 3, 1, 2, 3})
	},
	"no record behind one": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		record, _ := peer.Seal(sys.RecordData, []byte("some bytes"))
		return r.noRecord(t, a, b, append(record, "GET / HTTP/1.1\r\n\r\n"...))
	},
	"no record behind two": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		first, _ := peer.Seal(sys.RecordData, []byte("some bytes"))
		second, _ := peer.Seal(sys.RecordData, []byte("more"))
		return r.noRecord(t, a, b, append(append(first, second...), "GET / HTTP/1.1\r\n\r\n"...))
	},
	"a record with other keys": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		peer.Seal(sys.RecordData, []byte("one that is missing"))
		record, _ := peer.Seal(sys.RecordData, []byte("some bytes"))
		return r.noRecord(t, a, b, record)
	},
	"a send after what is no record": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		r.sendAll(t, a, []byte("GET / HTTP/1.1\r\n\r\n"))
		r.failed(t, b)
		var text string
		for range 2 {
			_, e := r.k.Send(b, []byte("answer"))
			text += e.Error() + fmt.Sprintf(" poll %#x, ", r.k.Poll(b, 0))
		}
		return text + r.reads(b, 3)
	},
	"the socket's error of what is no record": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		r.sendAll(t, a, []byte("GET / HTTP/1.1\r\n\r\n"))
		r.failed(t, b)
		return fmt.Sprint(sys.SockError(r.k, b)) + fmt.Sprintf(" poll %#x, ", r.k.Poll(b, 0)) + r.reads(b, 2)
	},
	"an end behind what is no record": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		r.sendAll(t, a, []byte("GET / HTTP/1.1\r\n\r\n"))
		r.failed(t, b)
		text := r.reads(b, 2)
		r.k.ShutdownWrite(a)
		testwait.Until(t, "the end arrives", func() bool { return r.k.Poll(b, sys.PollRdHup)&sys.PollRdHup != 0 })
		return text + r.reads(b, 2)
	},
	"a part of a record, and its end": func(t *testing.T, r *kernelRun, peer *Records, a, b int) string {
		record, _ := peer.Seal(sys.RecordData, []byte("some bytes"))
		r.sendAll(t, a, record[:12])
		text := r.reads(b, 2)
		r.sendAll(t, a, record[12:])
		testwait.Until(t, "it is whole", func() bool { return sys.Readable(r.k, b) })
		return text + r.reads(b, 2)
	},
}

// noRecord sends what ends with what is no record, and reads it in all ways.
func (r *kernelRun) noRecord(t *testing.T, a, b int, p []byte) string {
	r.sendAll(t, a, p)
	testwait.Until(t, "it arrives", func() bool { return r.k.Poll(b, sys.PollIn) != 0 })
	return r.reads(b, 4)
}

func (r *kernelRun) sendAll(t *testing.T, fd int, p []byte) {
	n, e := r.k.Send(fd, p)
	if n != len(p) {
		t.Fatalf("%T: send: %d %v", r.k, n, e)
	}
	r.arrived(t, fd)
}

// reads receives n times, and tells what the calls say, and poll before each. Until 6.5, poll also says In of a part of a record (tls_sk_poll).
func (r *kernelRun) reads(fd, n int) (text string) {
	for range n {
		p := make([]byte, 100)
		poll := r.k.Poll(fd, sys.PollRdHup)
		m, e := r.k.Recv(fd, p)
		text += fmt.Sprintf("poll %#x, receive %d %v; ", poll, m, e)
	}
	return text
}

// TestTLSLikeLinux runs scripts with kTLS on both kernels.
func TestTLSLikeLinux(t *testing.T) {
	if err := feature.KernelTLS.Err(); err != nil {
		t.Skip(err) // no release has it for sure
	}
	for name, script := range tlsScripts {
		t.Run(name, func(t *testing.T) {
			run := func(k sys.Kernel) string {
				r := newRun(t, k, sys.IPv4, 1)
				defer r.close()
				keys := func() *sys.TLSKeys { return &sys.TLSKeys{Suite: 0x1301, Key: make([]byte, 16)} }
				a, b := r.ends[0].fds[0], r.ends[1].fds[0]
				if _, e := k.GiveTLS(b, keys(), keys()); e != 0 {
					t.Fatalf("%T: kTLS: %v", k, e)
				}
				return script(t, r, NewRecords(keys(), keys()), a, b)
			}
			w := New()
			w.KernelTLS = true
			if real, simulated := run(sys.Linux{}), run(w.NewProcess()); real != simulated {
				t.Errorf("Linux     %s\nsimulated %s", real, simulated)
			}
		})
	}
}
