package cli

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Types of flags and arguments. Each validates itself, and its errors say what is allowed.

// Listen is where to listen.
type Listen struct{ spec.Endpoint }

func (a *Listen) UnmarshalText(b []byte) (err error) {
	a.Endpoint, err = spec.ParseListener(string(b))
	return err
}

// Upstream is where to connect.
type Upstream struct{ spec.Endpoint }

func (a *Upstream) UnmarshalText(b []byte) (err error) {
	a.Endpoint, err = spec.ParseUpstream(string(b))
	return err
}

// Source is an address of this host.
type Source struct{ netip.Addr }

func (a *Source) UnmarshalText(b []byte) (err error) {
	if a.Addr, err = netip.ParseAddr(string(b)); err != nil {
		return fmt.Errorf("invalid address %q; allowed: an IPv4 or IPv6 address of this host", b)
	}
	return nil
}

// Timeout is a time, or 0.
type Timeout time.Duration

func (t *Timeout) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf("invalid time %q; allowed: 0, or a number with a unit, such as 500ms, 30s, 5m or 1h", b)
	}
	*t = Timeout(d)
	return nil
}

// Count is a number of things.
type Count int

const maxCount = 1 << 20

func (n *Count) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil || v > maxCount {
		return fmt.Errorf("invalid count %q; allowed: 0 to %d", b, maxCount)
	}
	*n = Count(v)
	return nil
}

// Size is a number of bytes.
type Size int

const maxSize = 1 << 30

func (n *Size) UnmarshalText(b []byte) error {
	v, err := spec.ParseSize(string(b))
	if err != nil || v > maxSize {
		return fmt.Errorf("invalid size %q; allowed: 0 to %d bytes, as a number or with KiB, MiB or GiB", b, maxSize)
	}
	*n = Size(v)
	return nil
}

// Mode is a set of permissions, octal.
type Mode uint32

func (m *Mode) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 8, 32)
	if err != nil || v > 0o777 {
		return fmt.Errorf("invalid mode %q; allowed: 0 to 777, octal", b)
	}
	*m = Mode(v)
	return nil
}

// A Share is a part of a whole: 5%, or 0.05.
type Share float64

func (s *Share) UnmarshalText(b []byte) error {
	text, percent := strings.CutSuffix(string(b), "%")
	v, err := strconv.ParseFloat(text, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return fmt.Errorf("invalid share %q; allowed: more than 0%% and up to 100%%, such as 5%%", b)
	}
	*s = Share(v)
	return nil
}
