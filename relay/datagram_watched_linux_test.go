package relay

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// watcher are hooks that have each client's datagrams shown for longer than until it has an upstream, up to "enough".
type watcher struct {
	to    *Addr
	mu    sync.Mutex
	shown []string
	back  []string // shown of what the upstream has sent, up to "enough"
}

func (w *watcher) hooks(t *testing.T) Hooks {
	return Hooks{
		Admit: func(f *Flow) Cause {
			if err := f.StartSniff(100, time.Minute); err != nil {
				t.Error(err)
			}
			return CauseNone
		},
		Sniff: func(f *Flow, b []byte, last bool) (int, SniffNext) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.shown = append(w.shown, string(b))
			switch {
			case f.Upstream() != nil:
				if last {
					t.Errorf("%q is the last", b)
				}
				if string(b) == "enough" {
					return 0, SniffDone
				}
				return len(b), SniffMore // which takes nothing away
			case strings.HasPrefix(string(b), "to"):
				if err := f.StartSniff(1, 0); err != nil {
					t.Error(err)
				}
				return 0, SniffDone
			}
			return 0, SniffMore
		},
		Answered: func(f *Flow, b []byte, _ time.Duration, err error) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.back = append(w.back, string(b))
			return string(b) != "enough"
		},
		Upstream: func(*Flow, int) *Addr { return w.to },
	}
}

// A hook that has asked for it goes on seeing the first datagram of each batch of a client, holds none up, takes none away, and says
// when it has seen enough.
func TestDatagramWatched(t *testing.T) {
	r := newDatagramRig(t, Config{})
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	w := &watcher{to: &to}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: w.hooks(t)})
	c := packetSocket(t, "udp4")
	tell := func(c net.PacketConn, texts ...string) {
		t.Helper()
		if len(texts) == 1 {
			tellGram(t, c, l.Addr(), texts[0])
		} else {
			sendRun(t, c, l.Addr().AddrPort, texts...)
		}
		for _, text := range texts {
			hearGram(t, up, text)
		}
	}
	tellGram(t, c, l.Addr(), "before")
	tellGram(t, c, l.Addr(), "to")
	hearGram(t, up, "before")
	at := hearGram(t, up, "to")
	answer := func(texts ...string) {
		t.Helper()
		sendRun(t, up, netip.MustParseAddrPort(at.String()), texts...)
		for _, text := range texts {
			hearGram(t, c, text)
		}
	}
	answer("answer")
	answer("back 1", "back 2", "enough", "back 4")
	answer("later")
	tell(c, "second")
	tell(c, "run 1", "run 2", "run 3")
	tell(c, "enough")
	tell(c, "more")
	another := packetSocket(t, "udp4")
	tell(another, "to another")
	tell(c, "the end")
	answer("last")
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := []string{"answer", "back 1", "back 2", "enough"}; !slices.Equal(w.back, want) {
		t.Errorf("the hook was shown %q of the upstream, want %q", w.back, want)
	}
	if want := []string{"before", "to", "second", "run 1", "enough", "to another"}; !slices.Equal(w.shown, want) {
		t.Errorf("the hook was shown %q, want %q", w.shown, want)
	}
}
