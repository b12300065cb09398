package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/stats"
)

// passed is the writing end of a pipe that a test passes as SCM_RIGHTS, as often
// as a message has room for: the pipe ends when nobody holds that end any more.
type passed struct {
	t      *testing.T
	r, w   *os.File
	rights []byte
}

func newPassed(t *testing.T) *passed {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fds := make([]int, 253) // SCM_MAX_FD, unix(7)
	for i := range fds {
		fds[i] = int(w.Fd())
	}
	return &passed{t, r, w, sys.AppendRights(make([]byte, 0, 2048), fds...)}
}

// write sends b with descriptors; to nil: c is connected.
func (p *passed) write(c net.Conn, b []byte, to *net.UnixAddr) {
	if n, _, err := c.(*net.UnixConn).WriteMsgUnix(b, p.rights, to); n != len(b) || err != nil {
		p.t.Errorf("%d bytes of %d left: %v", n, len(b), err)
	}
}

// gone checks that nobody holds what was passed.
func (p *passed) gone() {
	p.t.Helper()
	p.w.Close()
	p.r.SetReadDeadline(time.Now().Add(patience))
	if n, err := p.r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		p.t.Errorf("a descriptor that was passed is still open: %v", err)
	}
}

// Datagrams arrive whose sender passes descriptors beside them, and the
// descriptors stay with nobody.
func TestDatagramsPassNoDescriptors(t *testing.T) {
	for _, listen := range []string{"unixgram", "udp4"} {
		for _, upstream := range []string{"unixgram", "udp4", ""} {
			if listen == "udp4" && upstream != "unixgram" {
				continue
			}
			t.Run(fmt.Sprintf("client=%s/upstream=%s", listen, upstream), func(t *testing.T) {
				r := newDatagramRig(t, Config{Loops: 1})
				up := &Addr{Network: Echo}
				var s net.PacketConn
				if upstream != "" {
					s = packetSocket(t, upstream)
					at := gramAddr(s.LocalAddr())
					up = &at
				}
				l := r.listenAt(gramPlace(t, listen), ListenConfig{}, up)
				c := packetSocket(t, listen)
				p := newPassed(t)
				say := func(c net.PacketConn, to net.Addr) {
					if unix, ok := to.(*net.UnixAddr); ok {
						p.write(c.(*net.UnixConn), []byte("x"), unix)
					} else if _, err := c.WriteTo([]byte("x"), to); err != nil {
						t.Error(err)
					}
				}
				for range 60 {
					say(c, gramNet(l.Addr()))
					if s != nil {
						say(s, hearGram(t, s, "x"))
					}
					hearGram(t, c, "x")
				}
				p.gone()
			})
		}
	}
}

// A stream goes on whose writer passes descriptors, and they stay with nobody,
// whether it is copied or spliced.
func TestStreamsPassNoDescriptors(t *testing.T) {
	for _, pipes := range []int{0, -1} {
		for _, upstream := range []string{"unix", "tcp4"} {
			t.Run(fmt.Sprintf("pipes=%d/upstream=%s", pipes, upstream), func(t *testing.T) {
				r := newRig(t, Config{MaxPipes: pipes})
				a, b := r.flow("unix", upstream, ListenConfig{})
				p := newPassed(t)
				chunk := []byte(strings.Repeat("x", 1<<20))
				spliced := func() (n int64) {
					r.e.Flows(func(fs []FlowInfo) bool { n += fs[0].Up.Spliced; return true })
					return n
				}
				sent := 0
				done := make(chan bool)
				go func() {
					defer close(done)
					defer a.(*net.UnixConn).CloseWrite()
					// Until it is spliced, and some more.
					for after := 0; after < 4 && sent < 500<<20; {
						if pipes < 0 || spliced() > 0 {
							after++
						}
						p.write(a, []byte("x"), nil)
						if _, err := a.Write(chunk); err != nil {
							t.Error(err)
							return
						}
						sent += 1 + len(chunk)
					}
				}()
				b.SetReadDeadline(time.Now().Add(patience))
				got, err := io.Copy(io.Discard, b)
				<-done
				if err != nil || got != int64(sent) {
					t.Errorf("%d bytes, want %d: %v", got, sent, err)
				}
				b.Close()
				rec := r.record()
				if pipes == 0 && rec.Up.Spliced == 0 || pipes < 0 && rec.Up.Path != datapath.Copy {
					t.Errorf("%+v", rec.Up)
				}
				p.gone()
			})
		}
	}
}

// A datagram that is longer than what is read is dropped, not passed on short.
func TestTruncatedDatagram(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "unixgram")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "unixgram"), ListenConfig{}, &up)
	c := packetSocket(t, "unixgram")
	c.(*net.UnixConn).SetWriteBuffer(1 << 20)
	s.(*net.UnixConn).SetWriteBuffer(1 << 20)
	long := strings.Repeat("x", dgramSize+1)
	tellGram(t, c, l.Addr(), long)
	tellGram(t, c, l.Addr(), long[:dgramSize])
	back := hearGram(t, s, long[:dgramSize])
	tellGram(t, s, gramAddr(back), long)
	tellGram(t, s, gramAddr(back), "short")
	hearGram(t, c, "short")
	if n := r.dgramStats().Dropped; n.Get(stats.DropTruncated) != 2 {
		t.Errorf("dropped %v", n)
	}
}
