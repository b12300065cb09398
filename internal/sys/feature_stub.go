//go:build !linux

package sys

import "errors"

// KernelRelease returns an error that is [errors.ErrUnsupported]: only Linux
// releases are compared.
func KernelRelease() (string, error) { return "", errors.ErrUnsupported }

// The probes return [errors.ErrUnsupported].

func ProbeSplice() error         { return errors.ErrUnsupported }
func ProbeReusePort() error      { return errors.ErrUnsupported }
func ProbeEpollExclusive() error { return errors.ErrUnsupported }
func ProbeEpollPwait2() error    { return errors.ErrUnsupported }
func ProbeRcvLowat() error       { return errors.ErrUnsupported }
func ProbePipeSize() error       { return errors.ErrUnsupported }
func ProbeKernelTLS() error      { return errors.ErrUnsupported }
