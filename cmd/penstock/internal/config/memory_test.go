package config

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func TestEngineMemory(t *testing.T) {
	parse := func(value string) (*spec.Config, error) {
		return Parse("penstock.yaml", []byte("engine: {memory: "+value+"}\n"+minimal))
	}
	for value, want := range map[string]int64{"auto": spec.MemoryAuto, "none": spec.MemoryNone, "96MiB": 96 << 20, "2TiB": 2 << 40, "134217728": 128 << 20, "32MiB": 32 << 20} {
		c, err := parse(value)
		if err != nil {
			t.Errorf("%s: %v", value, err)
		} else if c.Engine.Memory != want {
			t.Errorf("%s is %d, want %d", value, c.Engine.Memory, want)
		}
	}
	for value, want := range map[string]string{"1MiB": "out of range", "96MB": "96MiB", "autp": "auto", "0.5": "invalid size", "-1": "invalid size", "[]": "is a list", "2097152TiB": "out of range", "99999999999GiB": "out of range"} {
		if _, err := parse(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", value, err, want)
		}
	}
}
