package config

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// keeper: {} has the values that the daemon has where there is no file.
func TestKeeperDefaults(t *testing.T) {
	const rest = "listeners: {a: {listen: 'tcp://127.0.0.1:1', to: 'echo:'}}\n"
	for _, c := range []struct {
		text string
		want *spec.Keeper
	}{
		{"keeper: {}\n", &spec.DefaultKeeper},
		{"keeper: none\n", nil},
	} {
		cfg, err := Parse("test", []byte(c.text+rest))
		if err != nil {
			t.Fatal(err)
		}
		if (cfg.Keeper == nil) != (c.want == nil) || c.want != nil && *cfg.Keeper != *c.want {
			t.Errorf("%q: %+v, want %+v", c.text, cfg.Keeper, c.want)
		}
	}
}
