package keeper

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// The tests run keepers, workers and their next versions as child processes, all from this test binary.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childEnv); ok {
		os.Exit(runChild(text))
	}
	testnet.Main(m)
}
