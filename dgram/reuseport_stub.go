//go:build !linux

package dgram

import "errors"

func setReusePort(uintptr) error { return errors.ErrUnsupported }
