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

// Two keepers are compared key by key.
func TestKeeperDiff(t *testing.T) {
	parse := func(text string) *spec.Config {
		cfg, err := Parse("test", []byte("keeper: "+text+"\nlisteners: {a: {listen: 'tcp://127.0.0.1:1', to: 'echo:'}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for _, c := range []struct {
		old, new, want string
	}{
		{"{}", "{watchdog: 10s}", "no difference\n"},
		{"{keep-after: 2s, watchdog: 0}", "{max-restart-delay: 3s}", "settings                    changed\n" +
			"  keeper.keep-after         2s -> 1s\n  keeper.watchdog           never -> 10s\n  keeper.max-restart-delay  10s -> 3s\n"},
		{"none", "{watchdog: never}", "settings  changed\n  keeper  none -> {watchdog: never}\n"},
		{"{}", "none", "settings  changed\n  keeper  {} -> none\n"},
	} {
		if got := Compare(parse(c.old), parse(c.new)).String(); got != c.want {
			t.Errorf("%s to %s:\n%s\nwant\n%s", c.old, c.new, got, c.want)
		}
	}
}
