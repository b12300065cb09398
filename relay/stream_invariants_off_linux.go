//go:build !penstock_invariants

package relay

// checkInvariants does nothing without the build tag penstock_invariants.
func (s *streams) checkInvariants() {}
