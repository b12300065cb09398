//go:build !linux

package keeper

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// Run returns [errors.ErrUnsupported].
func Run(cfg Config) (exitCode int, err error) { return 1, errors.ErrUnsupported }

// Connect returns nil.
func Connect() (*Worker, error) { return nil, nil }

// Worker is the worker's end of the connection to its keeper. It is documented for Linux
// (GOOS=linux go doc).
type Worker struct{}

// Held returns nil.
func (*Worker) Held() []Item { return nil }

// Hold returns [errors.ErrUnsupported].
func (*Worker) Hold(key [2]uint64, label string, fds []int) error { return errors.ErrUnsupported }

// HoldConn returns [errors.ErrUnsupported].
func (*Worker) HoldConn(key [2]uint64, label string, c syscall.Conn) error {
	return errors.ErrUnsupported
}

// Drop does nothing.
func (*Worker) Drop(key [2]uint64) {}

// Flush returns [errors.ErrUnsupported].
func (*Worker) Flush() error { return errors.ErrUnsupported }

// Start returns the zero Start.
func (*Worker) Start() Start { return Start{} }

// Prepared returns [errors.ErrUnsupported].
func (*Worker) Prepared(info string) error { return errors.ErrUnsupported }

// Ready returns [errors.ErrUnsupported].
func (*Worker) Ready() error { return errors.ErrUnsupported }

// Alive does nothing.
func (*Worker) Alive() {}

// Notify does nothing.
func (*Worker) Notify(state string) {}

// Exiting does nothing.
func (*Worker) Exiting() {}

// Failing does nothing.
func (*Worker) Failing(why string) {}

// Restart returns [errors.ErrUnsupported].
func (*Worker) Restart() error { return errors.ErrUnsupported }

// OnHandOver does nothing.
func (*Worker) OnHandOver(f func()) {}

// HandedOver returns [errors.ErrUnsupported].
func (*Worker) HandedOver() error { return errors.ErrUnsupported }

// MayLinger returns false.
func (*Worker) MayLinger() bool { return false }

// Linger returns [errors.ErrUnsupported].
func (*Worker) Linger(most time.Duration, workers int) error { return errors.ErrUnsupported }

// Lingering returns nothing.
func (*Worker) Lingering() ([]Lingering, Death) { return nil, Death{} }

// Stay returns [errors.ErrUnsupported].
func (*Worker) Stay(why string) error { return errors.ErrUnsupported }

// SetTimes returns [errors.ErrUnsupported].
func (*Worker) SetTimes(t Times) error { return errors.ErrUnsupported }

// Upgrade returns [errors.ErrUnsupported].
func (*Worker) Upgrade(ctx context.Context, binary string, dryRun bool, progress func(Upgrade)) (Upgrade, error) {
	return Upgrade{}, errors.ErrUnsupported
}

// MayAsk returns false.
func (*Worker) MayAsk() bool { return false }

// Policy returns an empty text.
func (*Worker) Policy() string { return "" }

// SetPolicy returns [errors.ErrUnsupported].
func (*Worker) SetPolicy(policy string) error { return errors.ErrUnsupported }

// Ask returns [errors.ErrUnsupported].
func (*Worker) Ask(ctx context.Context, request string) (fd int, err error) {
	return -1, errors.ErrUnsupported
}

// LastUpgrade returns the zero Upgrade.
func (*Worker) LastUpgrade() Upgrade { return Upgrade{} }

// Dropped returns nil.
func (*Worker) Dropped() (keys [][2]uint64) { return nil }

// OnRefused does nothing.
func (*Worker) OnRefused(f func(key [2]uint64)) {}

// Stats returns the zero Stats.
func (*Worker) Stats() Stats { return Stats{} }

// Lost returns nil.
func (*Worker) Lost() <-chan struct{} { return nil }
