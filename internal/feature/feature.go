// Package feature reports what the running kernel can do.
//
// A [Probe] tries a feature once, and keeps the answer for the life of the process. It also
// declares the release that introduced the feature, so that a test can tell "this kernel is too
// old" (skip) from "the probe is wrong or something forbids it" (fail); see testnet.Need.
//
// A supported feature may still fail for one route or one descriptor, and the caller must then fall
// back.
package feature

import (
	"errors"
	"fmt"
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// Probe is one feature of the kernel. Probes are package variables, made by
// newProbe; they are safe for concurrent use.
type Probe struct {
	// Name is the name of the feature in messages: the flag, option or system call.
	Name string
	// Since is the first release with the feature.
	Since Version

	ask func() error
}

func newProbe(name string, since Version, try func() error) *Probe {
	p := &Probe{Name: name, Since: since}
	p.ask = sync.OnceValue(func() error {
		if err := try(); err != nil {
			return &UnsupportedError{Name: name, Since: since, Err: err}
		}
		return nil
	})
	return p
}

// Supported reports whether the kernel has the feature. The first call makes a
// few system calls and may wait some milliseconds.
func (p *Probe) Supported() bool { return p.Err() == nil }

// Err returns nil if the kernel has the feature, and an [*UnsupportedError]
// otherwise. It returns the same answer for the life of the process.
func (p *Probe) Err() error { return p.ask() }

// UnsupportedError says why a feature cannot be used. It is [errors.ErrUnsupported], and unwraps to
// the kernel's error.
type UnsupportedError struct {
	Name  string  // as Probe.Name
	Since Version // as Probe.Since
	Err   error   // the kernel's error
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s is not supported (needs Linux %v): %v", e.Name, e.Since, e.Err)
}

func (e *UnsupportedError) Unwrap() []error { return []error{e.Err, errors.ErrUnsupported} }

// Version is a Linux release: 6.18.3 is Version{6, 18, 3}.
type Version [3]int

// Less reports whether v is an older release than w.
func (v Version) Less(w Version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// String returns the release as kernel.org writes it: without a patch level of
// zero.
func (v Version) String() string {
	if v[2] == 0 {
		return fmt.Sprintf("%d.%d", v[0], v[1])
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
}

// Kernel returns the running release. The error is [errors.ErrUnsupported] if the system is not
// Linux.
func Kernel() (Version, error) { return kernel() }

var kernel = sync.OnceValues(func() (Version, error) {
	s, err := sys.KernelRelease()
	if err != nil {
		return Version{}, err
	}
	return ParseVersion(s)
})

// ParseVersion parses the numbers at the start of a release as uname(2) reports it: "6.18.44-fc1",
// "5.15", "4.14.186+". At least two numbers are required; what follows the third is ignored.
func ParseVersion(s string) (Version, error) {
	var v Version
	rest := s
	for i := range v {
		n, digits := 0, 0
		for digits < len(rest) && digits < 6 && '0' <= rest[digits] && rest[digits] <= '9' {
			n = n*10 + int(rest[digits]-'0')
			digits++
		}
		if digits == 0 {
			if i == 2 {
				break
			}
			return Version{}, fmt.Errorf("parse kernel release %q: want at least MAJOR.MINOR", s)
		}
		v[i] = n
		rest = rest[digits:]
		if len(rest) == 0 || rest[0] != '.' {
			if i == 0 {
				return Version{}, fmt.Errorf("parse kernel release %q: want at least MAJOR.MINOR", s)
			}
			break
		}
		rest = rest[1:]
	}
	return v, nil
}
