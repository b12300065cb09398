//go:build !linux

package host

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// RaiseDescriptorLimit is for Linux.
func RaiseDescriptorLimit() (uint64, error) { return 0, errors.ErrUnsupported }

// MaxDescriptors is unknown.
func MaxDescriptors() int64 { return 0 }

// CPUTime is unknown.
func CPUTime() time.Duration { return 0 }

func CheckSocketOptions(*spec.Dial) error { return nil }

func DialControl(*spec.Dial) func(network, address string, c syscall.RawConn) error { return nil }

func OwnBinary() (path, exec string, err error) { return "", "", errors.ErrUnsupported }

func Exec(path string, args, env []string) error { return errors.ErrUnsupported }

func UseAsStdin(f *os.File) error { return errors.ErrUnsupported }

func MemoryFile(name string) (*os.File, error) { return nil, errors.ErrUnsupported }

func FirstUnprivilegedPort() uint16 { return 0 }

func EffectiveCapabilities() uint64 { return 0 }

func KernelOlderThan(major, minor int) bool { return false }

func listeningTCP() ([]netip.AddrPort, error) { return nil, errors.ErrUnsupported }

func LeaveStart() {}
