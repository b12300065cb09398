//go:build !linux

package app

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// raiseFdLimit is for Linux.
func raiseFdLimit() (uint64, error) { return 0, errors.ErrUnsupported }

// maxFDs is unknown.
func maxFDs() int64 { return 0 }

// cpuTime is unknown.
func cpuTime() time.Duration { return 0 }

func tryDial(*spec.Dial) error { return nil }

func dialControl(*spec.Dial) func(network, address string, c syscall.RawConn) error { return nil }

func ownBinary() (path, exec string, err error) { return "", "", errors.ErrUnsupported }

func execve(path string, args, env []string) error { return errors.ErrUnsupported }

func useAsStdin(f *os.File) error { return errors.ErrUnsupported }

func memoryFile(name string) (*os.File, error) { return nil, errors.ErrUnsupported }

func firstUnprivilegedPort() uint16 { return 0 }

func effectiveCapabilities() uint64 { return 0 }

func olderThan(major, minor int) bool { return false }

func listeningTCP() ([]netip.AddrPort, error) { return nil, errors.ErrUnsupported }

func leaveStart() {}
