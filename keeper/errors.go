package keeper

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

var (
	// ErrLost is returned when the keeper has gone.
	ErrLost = errors.New("keeper: the keeper has gone")
	// ErrFull is returned by Hold when the keeper's limit of items or descriptors is reached.
	ErrFull = errors.New("keeper: limit of held items or descriptors reached")
	// ErrBusy is returned by Flush when the keeper has not yet read what was sent before.
	ErrBusy = errors.New("keeper: busy")
	// ErrItem is returned by Hold when the label is too long, or there is no descriptor or too many of them.
	ErrItem = errors.New("keeper: label too long, or not 1 to 64 descriptors")
	// ErrPolicy is returned by SetPolicy when the policy is too long, or was set before, and by Ask when the request is
	// too long.
	ErrPolicy = errors.New("keeper: policy or request too long, or policy set twice")

	errNilWorker = fmt.Errorf("keeper: use of a nil Worker, which Connect returns to a process that no keeper has started: %w", os.ErrInvalid)
)

// AskError is returned by [Worker.Ask] when the keeper has answered, and not with a descriptor.
type AskError struct {
	Text string
	// Errno is why the keeper's system call failed, or 0.
	Errno syscall.Errno
}

func (e *AskError) Error() string { return "keeper: " + e.Text }

// Unwrap returns Errno, if it is not 0.
func (e *AskError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}
