//go:build !linux

package packets

import (
	"errors"
	"time"
)

// A Socket is a packet socket.
type Socket struct{}

// ErrPrivilege is returned by Open if the process may not have a packet socket.
var ErrPrivilege = errors.New("packets are captured on Linux only")

// Open returns ErrPrivilege.
func Open([]Term) (*Socket, error) { return nil, ErrPrivilege }

// Filter returns ErrPrivilege.
func (*Socket) Filter([]Term) error { return ErrPrivilege }

// Read returns ErrPrivilege.
func (*Socket) Read(time.Duration) (Packet, bool, error) { return Packet{}, false, ErrPrivilege }

// Dropped returns 0.
func (*Socket) Dropped() int64 { return 0 }

// Close does nothing.
func (*Socket) Close() {}
