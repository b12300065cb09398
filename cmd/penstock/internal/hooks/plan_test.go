package hooks

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// What is never in a configuration is never in the engine, where 0 is a default.
func TestTimeouts(t *testing.T) {
	if got, want := Timeouts(spec.Timeouts{Connect: time.Second}), (relay.Timeouts{Connect: time.Second, Idle: -1, HalfClosed: -1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	all := spec.Timeouts{Connect: 1, FirstByte: 2, Idle: 3, HalfClosed: 4, Life: 5}
	if got, want := Timeouts(all), (relay.Timeouts{Connect: 1, FirstByte: 2, Idle: 3, HalfClosed: 4, Life: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
