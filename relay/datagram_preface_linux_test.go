package relay

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// prefaced is a listener whose upstreams are told by a preface who the client is, and at which attempt they were chosen if that is
// not the first. It has one client.
type prefaced struct {
	*rig
	*Listener
	client    net.PacketConn
	upstreams []net.PacketConn
	each      bool
}

func eachPreface(t *testing.T, run func(t *testing.T, each bool)) {
	for _, each := range []bool{true, false} {
		t.Run(fmt.Sprintf("each=%v", each), func(t *testing.T) { run(t, each) })
	}
}

func newPrefaced(t *testing.T, each bool, networks ...string) *prefaced {
	p := &prefaced{rig: newDatagramRig(t, Config{Loops: 1}), client: packetSocket(t, "udp4"), each: each}
	for _, network := range networks {
		p.upstreams = append(p.upstreams, packetSocket(t, network))
	}
	p.Listener = p.listenAt(gramPlace(t, "udp4"), ListenConfig{Dial: &DialConfig{PrefaceEach: each}, Hooks: Hooks{Upstream: func(f *Flow, attempt int) *Addr {
		if attempt >= len(p.upstreams) {
			return nil
		}
		up := gramAddr(p.upstreams[attempt].LocalAddr())
		for _, part := range []string{"from ", "", f.Client().AddrPort.String(), p.attempt(attempt)} {
			if err := f.Preface([]byte(part)); err != nil {
				t.Error(err)
			}
		}
		return &up
	}}})
	return p
}

func (p *prefaced) attempt(n int) string { return strings.Repeat(" again", n) + ": " }

// front returns what is in front of the datagrams to an upstream.
func (p *prefaced) front(attempt int) string {
	return "from " + p.client.LocalAddr().String() + p.attempt(attempt)
}

func (p *prefaced) tell(text string) {
	p.t.Helper()
	tellGram(p.t, p.client, p.Addr(), text)
}

// hear wants texts to arrive at an upstream, the first one with a preface, and so the others if each has one. It returns where they
// come from.
func (p *prefaced) hear(attempt int, texts ...string) (from Addr) {
	p.t.Helper()
	for i, text := range texts {
		if i == 0 || p.each {
			text = p.front(attempt) + text
		}
		from = gramAddr(hearGram(p.t, p.upstreams[attempt], text))
	}
	return from
}

// A preface is in front of each datagram, or of the first one, whatever its size is, and runs stay runs. What comes back has none,
// and what is counted has none.
func TestPrefaceOfDatagrams(t *testing.T) {
	for _, network := range grams {
		t.Run("upstream="+network, func(t *testing.T) {
			eachPreface(t, func(t *testing.T, each bool) {
				p := newPrefaced(t, each, network)
				sent := [][]string{{"one"}, {""}, {strings.Repeat("x", 1400)}, numbered(5), append(numbered(4), "short")}
				if network != "unixgram" { // whose queue has 10
					sent = append(sent, numbered(40), numbered(64))
				}
				total := 0
				for i, texts := range sent {
					if len(texts) == 1 {
						p.tell(texts[0])
					} else {
						sendRun(t, p.client, p.Addr().AddrPort, texts...)
					}
					var from Addr
					if i == 0 || each {
						from = p.hear(0, texts...)
					} else {
						for _, text := range texts {
							from = gramAddr(hearGram(t, p.upstreams[0], text))
						}
					}
					tellGram(t, p.upstreams[0], from, texts[0])
					hearGram(t, p.client, texts[0])
					total += len(strings.Join(texts, ""))
				}
				if got := p.dgramStats(); network != "unixgram" && got.Runs != 4 {
					t.Errorf("%d runs", got.Runs)
				}
				p.e.Close()
				if rec := p.record(); rec.Up.Read != int64(total) || rec.Up.Written != int64(total) {
					t.Errorf("%d bytes read, %d written; want %d", rec.Up.Read, rec.Up.Written, total)
				}
			})
		})
	}
}

// A run may be the first that a client sends, and the route may refuse it.
func TestPrefaceOfFirstRun(t *testing.T) {
	for _, errno := range []sys.Errno{0, sys.EIO, sys.EINVAL, sys.EMSGSIZE} {
		t.Run(fmt.Sprint(errno), func(t *testing.T) {
			eachPreface(t, func(t *testing.T, each bool) {
				p := newPrefaced(t, each, "udp4")
				if errno != 0 {
					p.k.Fail(testkernel.SendRun, errno, -1)
				}
				sendRun(t, p.client, p.Addr().AddrPort, numbered(20)...)
				p.hear(0, numbered(20)...)
				if got := p.dgramStats(); got.Fallbacks+got.Runs != 1 || (got.Runs == 1) != (errno == 0) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// What is too long with the preface is dropped and counted. If only the first datagram has one, that is the first that is sent.
func TestPrefaceTooBig(t *testing.T) {
	eachPreface(t, func(t *testing.T, each bool) {
		p := newPrefaced(t, each, "udp4")
		longest := strings.Repeat("x", 65507-len(p.front(0)))
		p.tell(longest + "x")
		testwait.Until(t, "it is dropped", func() bool { return p.dgramStats().Dropped.Get(stats.DropTooBigWithPreface) == 1 })
		p.tell(longest)
		p.tell("well")
		p.hear(0, longest, "well")
		if got := p.dgramStats(); got.Dropped.Total() != 1 || got.ICMPErrors != 0 {
			t.Errorf("%v; %d errors of others", got.Dropped, got.ICMPErrors)
		}
	})
}

// A datagram that could not be sent is not the first one; one that waited until the socket had room is.
func TestPrefaceAfterFailedSends(t *testing.T) {
	for _, errno := range []sys.Errno{sys.ENOBUFS, sys.EAGAIN, sys.EINTR} {
		t.Run(errno.Error(), func(t *testing.T) {
			eachPreface(t, func(t *testing.T, each bool) {
				p := newPrefaced(t, each, "udp4")
				p.k.Fail(testkernel.SendBatch, errno, 1)
				p.tell("first")
				arrive := []string{"first", "second", "third"}
				if errno == sys.ENOBUFS {
					testwait.Until(t, "it is dropped", func() bool { return p.dgramStats().Dropped.Get(stats.DropNoBuffers) == 1 })
					arrive = arrive[1:]
				}
				p.tell("second")
				p.tell("third")
				p.hear(0, arrive...)
			})
		})
	}
}

// The next upstream is told by a preface of its own.
func TestPrefaceOfNextUpstream(t *testing.T) {
	eachPreface(t, func(t *testing.T, each bool) {
		p := newPrefaced(t, each, "udp4", "udp4")
		p.tell("one")
		p.hear(0, "one")
		p.upstreams[0].Close()
		p.tell("two")
		testwait.Until(t, "the first upstream is gone", func() bool { return p.dgramStats().ICMPErrors == 1 })
		sendRun(t, p.client, p.Addr().AddrPort, numbered(3)...)
		p.hear(1, numbered(3)...)
	})
}

// The next process knows what is in front of which datagrams, also after a hand-over from it.
func TestPrefaceOutlivesProcess(t *testing.T) {
	for _, network := range grams {
		t.Run("upstream="+network, func(t *testing.T) {
			eachPreface(t, func(t *testing.T, each bool) {
				k, s, c := newKeptTable(t), packetSocket(t, network), packetSocket(t, "udp4")
				o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: gramAddr(s.LocalAddr()).String(), Preface: 28, Each: each}
				p := k.start(o)
				o.Listen = p.urls()
				front := string(testnet.NewPattern(9).At(0, 28))
				say := func(text string) {
					t.Helper()
					tellGram(t, c, p.addrs[0], text)
					tellGram(t, s, gramAddr(hearGram(t, s, front+text)), text)
					hearGram(t, c, text)
					if !each {
						front = ""
					}
				}
				say("one")
				say("two")
				k.expect(holdFlow, 1)
				for _, end := range []func(){p.kill, func() { p.ask("handover"); p.kill() }} {
					end()
					p = k.start(o)
					if p.Restored.Flows != 1 || p.Restored.TotalLost() != 0 {
						t.Fatalf("restored: %+v", p.Restored)
					}
					say("three")
					say("four")
				}
				p.ask("close")
			})
		})
	}
}

// fillQueue sends texts to a Unix socket until its queue is full, and returns how many it has.
func fillQueue(t *testing.T, to Addr, text string) (n int) {
	var sa sys.Sockaddr
	if err := sockaddr(&sa, to); err != nil {
		t.Fatal(err)
	}
	fd, e := sys.Linux{}.Datagram(sys.Unix)
	if e == 0 {
		defer sys.Linux{}.Close(fd)
		e = sys.Linux{}.Connect(fd, &sa)
	}
	for ; e == 0; n++ {
		_, e = sys.Linux{}.Send(fd, []byte(text))
	}
	if e != sys.EAGAIN {
		t.Fatal(e)
	}
	return n - 1
}

// What an upstream was not sent before the process died, because it took nothing, the next process sends it: the first datagram that
// leaves is still the first.
func TestUnsentPrefaceOutlivesProcess(t *testing.T) {
	eachPreface(t, func(t *testing.T, each bool) {
		k, s, c := newKeptTable(t), packetSocket(t, "unixgram"), packetSocket(t, "udp4")
		to := gramAddr(s.LocalAddr())
		queued := fillQueue(t, to, "in the queue")
		o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: to.String(), Preface: 28, Each: each}
		p := k.start(o)
		o.Listen = p.urls()
		tellGram(t, c, p.addrs[0], "held, and lost with the process")
		k.expect(holdFlow, 1)
		p.ask("stats")
		p.kill()
		for range queued {
			hearGram(t, s, "in the queue")
		}
		p = k.start(o)
		front := string(testnet.NewPattern(9).At(0, 28))
		tellGram(t, c, p.addrs[0], "first")
		hearGram(t, s, front+"first")
		tellGram(t, c, p.addrs[0], "second")
		if !each {
			front = ""
		}
		hearGram(t, s, front+"second")
		p.ask("close")
	})
}
