package archtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// The rules are checked by reading files, one after the other. There is nothing for the race detector to find, and
// with it that takes two minutes.
func TestMain(m *testing.M) {
	if testnet.RaceEnabled {
		fmt.Println("skipped with -race: nothing here runs side by side")
		return
	}
	os.Exit(m.Run())
}
