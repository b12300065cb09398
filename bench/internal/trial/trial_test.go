//go:build linux

package trial

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestNamed(t *testing.T) {
	for name, want := range map[string]bool{"flood/full": true, "reload": true, "balance": false, "reloads": false} {
		if Named("flood/*,reload", name) != want {
			t.Errorf("%s is named: %v", name, !want)
		}
	}
}

// The machine is in the output, and the folder of the run goes.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	r := Run{Penstock: "/penstock", Out: &out}
	end, err := r.Begin(64)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if _, err := os.Stat(r.Dir); !os.IsNotExist(err) || !strings.Contains(out.String(), "kernel: ") || r.Files < 64 {
		t.Errorf("%v, %d files, %q", err, r.Files, out.String())
	}
}
