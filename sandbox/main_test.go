package sandbox

import (
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// folder is for what all tests share.
var folder string

func TestMain(m *testing.M) {
	testnet.Main(m, func() (teardown func(), err error) {
		if folder, err = os.MkdirTemp("", "penstock-sandbox"); err != nil {
			return nil, err
		}
		return func() { os.RemoveAll(folder) }, os.Chmod(folder, 0o755)
	})
}
