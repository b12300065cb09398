package keeping

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
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
		k := &Link{lastConfigs: [][]byte{text}}
		k.AddressesBefore()
		k.LayersBefore()
		var h history
		if json.Unmarshal(text, &h) == nil {
			h.add(&api.WorkerStart{Reason: "crash"}, map[keeper.Reason]int{keeper.First: 1, keeper.Crash: 2, keeper.Upgraded: 3})
		}
	})
}
