package keeper

import "errors"

var (
	// ErrLost is returned when the keeper has gone.
	ErrLost = errors.New("keeper: the keeper has gone")
	// ErrFull is returned by Hold when the keeper's limit of items or descriptors is reached.
	ErrFull = errors.New("keeper: limit of held items or descriptors reached")
	// ErrBusy is returned by Flush when the keeper has not yet read what was sent before.
	ErrBusy = errors.New("keeper: busy")
	// ErrItem is returned by Hold when the label is too long or there are too many descriptors.
	ErrItem = errors.New("keeper: label too long or too many descriptors")
)
