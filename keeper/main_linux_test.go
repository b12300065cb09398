package keeper

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// ExampleProgram is the example, and ExampleEnv the variable with which this test binary runs it.
var ExampleProgram func()

const ExampleEnv = "PENSTOCK_KEEPER_EXAMPLE"

// The tests run keepers, workers and their next versions as child processes, all from this test binary.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childEnv); ok {
		os.Exit(runChild(text))
	}
	if os.Getenv(ExampleEnv) != "" {
		ExampleProgram()
		os.Exit(0)
	}
	testnet.Main(m)
}
