//go:build !penstock_invariants

package loop

// checkInvariants does nothing without the build tag penstock_invariants.
func (l *Loop) checkInvariants() {}
