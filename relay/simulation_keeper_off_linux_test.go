//go:build !penstock_invariants

package relay

import (
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/relay/hold"
)

// simKeeper needs the build tag penstock_invariants.
type simKeeper struct{}

const simKeepers = false

func newSimKeeper(*simHolder, simRelay) *simKeeper { return nil }

func (*simKeeper) hold(holdKey, string, []int) error { return nil }
func (*simKeeper) drop(holdKey)                      {}
func (*simKeeper) flush() error                      { return nil }
func (*simKeeper) closeDropped()                     {}
func (*simKeeper) give() []hold.Held                 { return nil }
func (*simKeeper) next() *simkernel.Process          { return nil }
func (*simKeeper) begun()                            {}
func (*simKeeper) ended()                            {}
func (*simKeeper) fd(holdKey) int                    { return -1 }
func (*simKeeper) close()                            {}
func (*simKeeper) calm()                             {}
func (*simKeeper) full() bool                        { return false }
func (*simKeeper) ask(int) bool                      { return false }
func (*simKeeper) acts(int) bool                     { return false }
func (*simKeeper) standbyDies(int) bool              { return false }
func (*simKeeper) idle()                             {}
func (*simKeeper) rest() bool                        { return false }
func (*simKeeper) refused(holdKey) bool              { return false }
func (*simKeeper) leaves()                           {}
func (*simKeeper) lingererEnded(*simkernel.Process)  {}
