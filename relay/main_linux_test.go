package relay

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) {
	if order, ok := os.LookupEnv(childEnv); ok {
		os.Exit(runChild(order))
	}
	if order, ok := os.LookupEnv(keptEnv); ok {
		os.Exit(runKept(order))
	}
	if order, ok := os.LookupEnv(lastCallEnv); ok {
		os.Exit(runLastCall(order))
	}
	testnet.Main(m)
}
