package hold

import (
	"fmt"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/ledger"
)

// Check reports whether this version of the package can read what was held for an engine. If not, it
// returns why, and Engine.Restore would lose all flows of a loop. The other process may still run: a
// new version of a program calls Check before it takes over. The descriptors stay the caller's.
func Check(held []Held) error {
	for _, x := range held {
		loop, ok := ledger.KeyLoop(x.Key)
		if !ok || len(x.FDs) == 0 {
			continue
		}
		if err := ledger.Check(x.FDs[0]); err != nil {
			return fmt.Errorf("relay: flows of loop %d: %w", loop, err)
		}
	}
	return nil
}

// CheckKernelTLS reports whether the kernel has TLS; if not, it returns why. The first call makes a few connections of this process with
// itself. The module is loaded by the first program that asks for it and has CAP_NET_ADMIN, or by modprobe tls.
func CheckKernelTLS() error { return feature.KernelTLS.Err() }
