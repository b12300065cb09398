//go:build !linux

package sandbox

import "errors"

// Enter returns [errors.ErrUnsupported].
func Enter(p Policy) (Report, error) { return Available(), errors.ErrUnsupported }

// Available returns a report of layers that are not held.
func Available() Report {
	var r Report
	for l := range Layer(len(layers)) {
		r.Layers = append(r.Layers, Status{Layer: l, Why: "this system is not Linux"})
	}
	return r
}

// CanBecome returns false.
func CanBecome(p Policy) bool { return false }
