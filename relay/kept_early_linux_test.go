package relay

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// Flows that were queued begin again after all others are restored: until the hooks know those, they cannot tell
// whether there is room for another one.
func TestHandOverQueued(t *testing.T) {
	const early, relaying = 40, 3 * restoreBurst
	k := newKeptTable(t)
	upstream := echoServer(t, "unix")
	o := keptOrder{Loops: 2, After: patience, Listen: []string{keptPlace(t, "unix")}, Upstream: upstream.String(), Connected: relaying}
	proc := k.start(o)
	var all []net.Conn
	enter := func() net.Conn {
		c := testnet.Dial(t, toNet(proc.addrs[0]))
		all = append(all, c)
		return c
	}
	// Flows that end leave places for the queued ones in front of some that relay.
	var short []net.Conn
	for range early {
		c := testnet.Dial(t, toNet(proc.addrs[0]))
		say(t, c, c, "short")
		short = append(short, c)
	}
	for range relaying - early {
		c := enter()
		say(t, c, c, "relaying")
	}
	for _, c := range short {
		c.Close()
	}
	eventually(t, "the short ones have ended", func() bool {
		return proc.ask("stats").Stats.Flows() == relaying-early
	})
	for range early {
		enter()
	}
	eventually(t, "the others are queued", func() bool {
		return proc.ask("stats").Stats.Flows() == relaying
	})
	proc.ask("handover")
	proc.kill()
	o.Connected, o.Decoded = 0, relaying
	proc = k.start(o)
	if r := proc.Restored; r.Flows != relaying || r.Ended != 0 || r.TotalLost() != 0 {
		t.Fatalf("%+v", r)
	}
	for i, c := range all {
		say(t, c, c, fmt.Sprintf("client %d", i))
		c.Close()
	}
	k.settled(0)
}

// An early flow whose client epoll does not take is lost, and not restored.
func TestHandOverEarlyWithoutEpoll(t *testing.T) {
	k := newKeptTable(t)
	upstream := echoServer(t, "unix")
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "unix")}, Upstream: upstream.String(), Sniff: 9}
	proc := k.start(o)
	testnet.Dial(t, toNet(proc.addrs[0]))
	eventually(t, "the client is sniffed", func() bool { return proc.ask("stats").Stats.Flows() == 1 })
	proc.ask("handover")
	proc.kill()
	for _, x := range k.heldOf(holdFlow) {
		f, err := os.Open(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		k.closeAll(x.FDs)
		x.FDs[0], _ = sys.Dup(int(f.Fd())) // epoll(7) takes no regular file
		f.Close()
	}
	proc = k.start(o)
	if r := proc.Restored; r.Flows != 0 || r.TotalLost() != 1 || r.Lost[LossResources] != 1 {
		t.Errorf("%+v", r)
	}
	k.settled(0)
}
