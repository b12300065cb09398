package hooks

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// TestReloadOfLoggedFlows: which flows the daemon's own log has follows each reload, and a reload that does not change that keeps
// the log as it is.
func TestReloadOfLoggedFlows(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	b := NewAccounting(log, func() int64 { return 0 }, account.NewCounters(), saved.NewValues(counts.Heap(saved.ValuesLayout)), nil, account.Opening{})
	stages := []struct {
		flows string
		want  []string
		kept  bool
	}{
		{flows: account.LogNone, kept: true}, // as it begins
		{flows: account.LogFailed, want: []string{"1-refused"}},
		{flows: account.LogAll, want: []string{"2-refused", "2-end"}},
		{flows: account.LogAll, want: []string{"3-refused", "3-end"}, kept: true},
		{flows: account.LogFailed, want: []string{"4-refused"}},
		{flows: account.LogNone},
		{flows: account.LogAll, want: []string{"6-refused", "6-end"}},
	}
	var want []string
	for i, s := range stages {
		before := b.flowLog.Load()
		next, err := b.Open(&spec.Config{Log: spec.Log{Flows: s.flows}}, false)
		if err != nil {
			t.Fatal(err)
		}
		b.Use(next)
		if kept := b.flowLog.Load() == before; kept != s.kept {
			t.Errorf("reload %d, log.flows %s: the log was kept: %t", i, s.flows, kept)
		}
		stage := string(rune('0' + i))
		for _, e := range []account.Entry{
			{ListenerName: stage + "-refused", Record: relay.Record{Cause: relay.CauseNoUpstream}},
			{ListenerName: stage + "-end", Record: relay.Record{Cause: relay.CauseEnd}},
		} {
			b.flowLog.Load().Record(&e)
		}
		want = append(want, s.want...)
	}
	b.Close() // writes what is queued
	var got []string
	for line := range strings.Lines(out.String()) {
		if _, rest, ok := strings.Cut(line, " listener="); ok {
			got = append(got, strings.Fields(rest)[0])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q:\n%s", got, want, out.String())
	}
}
