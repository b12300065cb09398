package keeping

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/keeper"
)

// The documents of the worker before are read, or are not there.
func FuzzBefore(f *testing.F) {
	f.Add([]byte(`{"version":1,"started":"2026-11-22T13:00:00Z","members":{},"limits":{"a":{}},"events":[{"id":1}]}`))
	f.Add([]byte(`{"source":"a.yaml","text":"bGlzdGVuZXJzOiBbXQ==","token":"x","layers":[{"Path":"etcd://a/b","Text":"YQ=="}],"ports":{"a":"tcp://127.0.0.1:1"}}`))
	f.Add([]byte(`{"since":"2026-11-22T13:00:00Z","starts":{"crash":2},"total":{"lost":[{"reason":"hook","count":1}]},"last":{"lost":null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseState(text); err == nil && s.Started.After(time.Now()) {
			t.Errorf("started %v", s.Started)
		}
		if cfg, err := parseSavedConfig(text); err == nil && cfg == nil {
			t.Error("no configuration, and no error")
		}
		k := &Link{lastConfigs: runBefore([][]byte{text, text}, "")}
		k.AddressesBefore()
		k.LayersBefore()
		var h history
		if json.Unmarshal(text, &h) == nil {
			h.add(&api.WorkerStart{Reason: "crash"}, map[keeper.Reason]int{keeper.First: 1, keeper.Crash: 2, keeper.Upgraded: 3})
		}
	})
}

// A worker that dies after it has saved its configuration, and before it is ready, leaves the newest configuration and not its policy. The
// next worker enters the sandbox of the one before, and goes on with what ran in that.
func TestConfigurationOfThePolicy(t *testing.T) {
	file, err := host.MemoryFile(labelConfig)
	if err != nil {
		t.Fatal(err)
	}
	k := Alone()
	k.config = saved.NewDocument(file)
	defer k.config.Close()
	save := func(policy, source string) {
		t.Helper()
		k.SetPolicy(policy) // fails, because there is no keeper
		if err := k.SaveConfig(&spec.Config{Source: source, Text: []byte("listeners: {l: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	save("one", "first")
	save("one", "reloaded")
	save("two", "of the worker that died")
	texts, err := k.config.ReadBoth()
	if err != nil || len(texts) != 2 {
		t.Fatalf("%d texts, %v", len(texts), err)
	}
	for policy, want := range map[string][]string{
		"one":   {"reloaded", "of the worker that died"},
		"two":   {"of the worker that died", "reloaded"},
		"three": {"of the worker that died", "reloaded"}, // that of a worker of an earlier version, which saves none
	} {
		next := &Link{lastConfigs: runBefore(texts, policy)}
		var got []string
		for _, cfg := range next.SavedConfigs() {
			got = append(got, cfg.Source)
		}
		if cfg, err := next.SavedConfig(); err != nil || cfg.Source != want[0] || !slices.Equal(got, want) {
			t.Errorf("policy %s: %v, of %q, %v; want %q", policy, cfg, got, err, want)
		}
	}
}
