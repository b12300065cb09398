package config

import (
	"path/filepath"
	"testing"
)

// examples are the files of docs/examples.
func examples(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../../../docs/examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	return files
}

func TestExamples(t *testing.T) {
	for _, path := range examples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, warnings, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			if c.Source != path || len(c.Listeners) == 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}
