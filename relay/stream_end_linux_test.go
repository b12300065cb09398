package relay

import (
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// What was read from a client before it reset the connection, and its upstream was too
// slow to take, is not dropped if the upstream takes it soon.
func TestHeldBytesOutliveReset(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.k.StopClock()
	a, b := r.flow("tcp4", "tcp4", ListenConfig{})
	r.fill(t, a)
	reset(t, a)
	testwait.Until(t, "the reset is noticed", func() (noticed bool) {
		r.e.onLoops(func(f *Flow) { noticed = f.cause != CauseNone })
		return noticed
	})
	readToEnd(t, b)
	if rec := r.expect(CauseClientReset); rec.Up.Read == 0 || rec.Up.BytesDropped() != 0 {
		t.Errorf("%+v", rec)
	}
}

// A write that fails ends the flow at once if the other direction has ended:
// nobody has anything to deliver any more.
func TestFailedWriteAfterEnd(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.k.StopClock()
	a, b := r.flow("tcp4", "tcp4", ListenConfig{})
	r.fill(t, a)
	closeWrite(t, b)
	wantEnd(t, a)
	reset(t, b)
	r.expect(CauseUpstreamReset)
}

// A reset that is seen while there is more to read than one turn moves is not
// forgotten when a later turn finds that the other side takes no more.
func TestResetBeforeStall(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	testnet.Sysctl(t, "net.ipv4.tcp_rmem", "4096 33554432 33554432") // of the client's socket
	testnet.Sysctl(t, "net.ipv4.tcp_wmem", "4096 4194304 4194304")   // of the upstream's
	for _, pipes := range []int{0, -1} {
		r := newDatagramRig(t, Config{Loops: 1, MaxPipes: pipes})
		block := r.blockLoop()
		a, b := r.flow("tcp4", "tcp4", ListenConfig{})
		say(t, a, b, "hello")
		b.(*net.TCPConn).SetReadBuffer(64 << 10)
		release := block()
		fill(t, a)
		reset(t, a)
		release()
		for { // b reads nothing meanwhile
			if rec := r.record(); rec.Listener.Addr().Network == TCP {
				if rec.Cause != CauseClientReset || rec.Up.Read <= turnBudget || rec.Up.BytesDropped() == 0 {
					t.Errorf("%+v", rec)
				}
				break
			}
		}
		r.e.Close()
	}
}
