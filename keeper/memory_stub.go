//go:build !linux

package keeper

import (
	"errors"
	"sync/atomic"
)

// Memory is memory that outlives the process. It is documented for Linux (GOOS=linux go doc).
type Memory struct{}

// NewMemory returns [errors.ErrUnsupported].
func NewMemory(name string, size int) (*Memory, error) { return nil, errors.ErrUnsupported }

// OpenMemory returns [errors.ErrUnsupported].
func OpenMemory(fd int) (*Memory, error) { return nil, errors.ErrUnsupported }

// FD returns -1.
func (*Memory) FD() int { return -1 }

// Bytes returns nil.
func (*Memory) Bytes() []byte { return nil }

// Words returns nil.
func (*Memory) Words() []atomic.Int64 { return nil }

// Close returns [errors.ErrUnsupported].
func (*Memory) Close() error { return errors.ErrUnsupported }
