package conformance

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/splice"
)

func TestMain(m *testing.M) { testnet.Main(m) }

var pairs = [][2]string{{"tcp4", "tcp4"}, {"tcp4", "unix"}, {"unix", "tcp4"}, {"unix", "unix"}}

// carry relays bytes between two connections until both have ended; it owns them from then on.
type carry func(a, b net.Conn) error

// testConn runs the net.Conn test suite over two connections with a relay in between.
func testConn(t *testing.T, pairs [][2]string, through carry) {
	for _, p := range pairs {
		t.Run("a="+p[0]+"/b="+p[1], func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				c1, a := testnet.Pair(t, p[0])
				b, c2 := testnet.Pair(t, p[1])
				if err := through(a, b); err != nil {
					return nil, nil, nil, err
				}
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
	}
}

// Two connections with splice.Relay in between behave like the two ends of a net.Conn.
func TestSplice(t *testing.T) {
	for name, cfg := range map[string]splice.Config{"path=any": {}, "path=copy": {NoSplice: true}, "idle=1m": {Idle: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			testnet.CheckLeaks(t)
			var wg sync.WaitGroup
			defer wg.Wait()
			testConn(t, pairs, func(a, b net.Conn) error {
				wg.Go(func() {
					cfg.Relay(a, b)
					a.Close()
					b.Close()
				})
				return nil
			})
		})
	}
}

// So do two connections that an engine has taken over.
func TestEngine(t *testing.T) {
	for name, cfg := range map[string]relay.Config{"path=any": {Loops: 2}, "path=copy": {Loops: 2, MaxPipes: -1}, "loops=dedicated": {Loops: 1, Dedicated: true}} {
		t.Run(name, func(t *testing.T) {
			testnet.CheckLeaks(t)
			e, err := relay.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			pairs := pairs
			if cfg.Dedicated {
				pairs = pairs[1:2] // on a machine with one CPU, a dedicated loop leaves little time to the ends
			}
			testConn(t, pairs, func(a, b net.Conn) error { return e.Relay(a, b, relay.PairConfig{}) })
			ctx, cancel := context.WithTimeout(t.Context(), testnet.Patience)
			defer cancel()
			if err := e.Drain(ctx); err != nil {
				t.Error(err)
			}
			s := e.Stats()
			sum := s.Total()
			if s.Flows() != 0 || s.PipesLeased != 0 || sum.BytesRead != sum.BytesWritten+sum.BytesDropped || sum.BytesRead == 0 {
				t.Errorf("%d flows, %d pipes on lease, bytes read %d, written %d, dropped %d", s.Flows(), s.PipesLeased, sum.BytesRead, sum.BytesWritten, sum.BytesDropped)
			}
		})
	}
}

// The same with a listener: accepted, connected, relayed.
func TestListener(t *testing.T) {
	testnet.CheckLeaks(t)
	e, err := relay.New(relay.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		up := testnet.Listen(t, "tcp4")
		defer up.Close()
		to := &relay.Addr{Network: relay.TCP, AddrPort: up.Addr().(*net.TCPAddr).AddrPort()}
		l, err := e.ListenOn(testnet.Unwrap(testnet.Listen(t, "unix")), relay.ListenConfig{Hooks: relay.Hooks{
			Upstream: func(*relay.Flow, int) *relay.Addr { return to },
		}})
		if err != nil {
			return nil, nil, nil, err
		}
		defer l.Close()
		c1 = testnet.Dial(t, &net.UnixAddr{Net: "unix", Name: l.Addr().Path})
		if c2, err = up.Accept(); err != nil {
			return nil, nil, nil, err
		}
		return c1, c2, func() { c1.Close(); c2.Close() }, nil
	})
}
