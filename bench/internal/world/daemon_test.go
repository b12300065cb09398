//go:build linux

package world

import (
	"testing"

	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/internal/testwait"
)

// A keeper that SIGTERM ends while it executes its new binary leaves a worker that drains: how that has ended counts.
func TestEndedAlone(t *testing.T) {
	for _, c := range []struct {
		says string
		code int
		good bool
	}{
		{`{"msg":"ended","how":"drained"}`, 0, true},
		{`{"msg":"ended","how":"deadline passed"}`, DrainedLate, true},
		{`{"msg":"ended","how":"second signal"}`, -1, false},
		{`panic: nil`, -1, false},
	} {
		// Its child goes on until it has gone. Before, it has said what must not be taken for its last line.
		script := `echo '{"msg":"ended","how":"drained"}'; (while kill -0 $$ 2>/dev/null; do :; done; echo "$0") & wait`
		d := &Daemon{trial.DaemonAt("sh", t.TempDir(), "-c", script, c.says), true}
		if err := d.Begin(); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "its child runs", func() bool {
			_, err := d.worker()
			return err == nil
		})
		if code, err := d.Terminate(); code != c.code || (err == nil) != c.good {
			t.Errorf("%s: %d, %v; want %d, good: %v", c.says, code, err, c.code, c.good)
		}
	}
}
