package app

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Types of flags and arguments. Each validates itself, and its errors say what is allowed.

type listenArg struct{ spec.Endpoint }

func (a *listenArg) UnmarshalText(b []byte) (err error) {
	a.Endpoint, err = spec.ParseListener(string(b))
	return err
}

type upstreamArg struct{ spec.Endpoint }

func (a *upstreamArg) UnmarshalText(b []byte) (err error) {
	a.Endpoint, err = spec.ParseUpstream(string(b))
	return err
}

type source struct{ netip.Addr }

func (a *source) UnmarshalText(b []byte) (err error) {
	if a.Addr, err = netip.ParseAddr(string(b)); err != nil {
		return fmt.Errorf("invalid address %q; allowed: an IPv4 or IPv6 address of this host", b)
	}
	return nil
}

type timeout time.Duration

func (t *timeout) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf("invalid time %q; allowed: 0, or a number with a unit, such as 500ms, 30s, 5m or 1h", b)
	}
	*t = timeout(d)
	return nil
}

type count int

const maxCount = 1 << 20

func (n *count) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil || v > maxCount {
		return fmt.Errorf("invalid count %q; allowed: 0 to %d", b, maxCount)
	}
	*n = count(v)
	return nil
}

type size int

const maxSize = 1 << 30

func (n *size) UnmarshalText(b []byte) error {
	v, err := spec.ParseSize(string(b))
	if err != nil || v > maxSize {
		return fmt.Errorf("invalid size %q; allowed: 0 to %d bytes, as a number or with KiB, MiB or GiB", b, maxSize)
	}
	*n = size(v)
	return nil
}

type mode uint32

func (m *mode) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 8, 32)
	if err != nil || v > 0o777 {
		return fmt.Errorf("invalid mode %q; allowed: 0 to 777, octal", b)
	}
	*m = mode(v)
	return nil
}
