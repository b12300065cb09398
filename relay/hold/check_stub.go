//go:build !linux

package hold

import "errors"

// Check returns [errors.ErrUnsupported].
func Check(held []Held) error { return errors.ErrUnsupported }

// CheckKernelTLS returns [errors.ErrUnsupported].
func CheckKernelTLS() error { return errors.ErrUnsupported }
