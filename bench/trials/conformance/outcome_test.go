package conformance

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// patience bounds every wait for something that is expected to happen.
const patience = testnet.Patience

// class returns the kind of an error, as a program would test for it.
func class(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "no error"
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return "deadline, but no timeout"
		}
		return "deadline"
	case errors.Is(err, io.EOF):
		return "end"
	case errors.As(err, &errno):
		return errno.Error()
	default:
		return "some error"
	}
}

// wantSame fails unless ours did what theirs did.
func wantSame(t *testing.T, ours, theirs []string) {
	t.Helper()
	if !slices.Equal(ours, theirs) {
		t.Errorf("different outcomes:\nours   %q\ntheirs %q", ours, theirs)
	}
}
