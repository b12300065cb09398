package dgram

import (
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// level is how much help of the kernel a Conn gets. Tests of what every level
// must do run on each of them.
type level struct {
	name string
	cfg  Config
	open func(*Conn, Config) (driver, error)
}

var portableLevel = level{"portable", Config{}, newPortable}

func eachLevel(t *testing.T, f func(t *testing.T, l level)) {
	t.Helper()
	for _, l := range levels {
		t.Run("level="+l.name, func(t *testing.T) { f(t, l) })
	}
}

// with is the level with more configuration.
func (l level) with(change func(*Config)) level {
	change(&l.cfg)
	return l
}

// conn makes a Conn of this level beside sock.
func (l level) conn(tb testing.TB, sock socket) *Conn {
	tb.Helper()
	c, err := newConn(sock, l.cfg, l.open)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
