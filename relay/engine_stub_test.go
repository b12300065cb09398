//go:build !linux

package relay

import (
	"errors"
	"testing"
)

func TestNewIsUnsupported(t *testing.T) {
	if e, err := New(Config{}); e != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("New gave %v, %v", e, err)
	}
}
