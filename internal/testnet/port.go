package testnet

import (
	"testing"

	"github.com/penstock/penstock/internal/testport"
)

// Port returns a port of TCP and UDP at which nobody listens, at any address, and which is the test's own until
// it ends: no other test of any package gets it, and neither does an outgoing connection. It is for an
// address that must be known before somebody listens, at which a server is to come back, or at which nobody
// must listen. What can listen at port 0 and say its address should do that.
func Port(tb testing.TB) string {
	tb.Helper()
	port, release, err := testport.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	return port
}
