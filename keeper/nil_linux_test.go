package keeper

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

// Connect returns a nil Worker where there is no keeper. Who forgets to look is told so by each method that returns an error.
func TestNilWorker(t *testing.T) {
	var w *Worker
	var key [2]uint64
	for name, call := range map[string]func() error{
		"Hold":       func() error { return w.Hold(key, "", []int{0}) },
		"HoldConn":   func() error { return w.HoldConn(key, "", new(net.TCPConn)) },
		"Flush":      func() error { return w.Flush() },
		"Prepared":   func() error { return w.Prepared("") },
		"Ready":      func() error { return w.Ready() },
		"SetTimes":   func() error { return w.SetTimes(Times{}) },
		"Restart":    func() error { return w.Restart() },
		"HandedOver": func() error { return w.HandedOver() },
		"Stay":       func() error { return w.Stay("") },
		"SetPolicy":  func() error { return w.SetPolicy("") },
		"Upgrade":    func() error { _, err := w.Upgrade(t.Context(), "", false, nil); return err },
		"Ask":        func() error { _, err := w.Ask(t.Context(), ""); return err },
	} {
		if err := call(); !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), "nil Worker") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
