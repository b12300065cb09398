package dashboard_test

import (
	"io/fs"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/dashboard"
)

// maxSize is what docs/observing.md says of the page.
const maxSize = 300_000

func TestSize(t *testing.T) {
	total := int64(0)
	err := fs.WalkDir(dashboard.Files(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		total += info.Size()
		return err
	})
	if err != nil || total > maxSize {
		t.Errorf("the page is %d bytes, at most %d: %v", total, maxSize, err)
	}
}
