package main

import (
	"os"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// The flows that ended last are listed by the next worker, too, after an upgrade; that the last reload failed is
// known after a crash.
func TestEndedFlowsAndFailedReloadGoOn(t *testing.T) {
	t.Parallel()
	k := runKept(t, "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n")
	end := func(n int) {
		c := testnet.Dial(t, k.at("tcp"))
		mustPing(t, c)
		c.Close()
		testwait.Until(t, "the flow has ended", func() bool {
			s, err := k.admin.Status(k.ctx())
			return err == nil && s.Totals.Flows == 0 && len(k.ended(t)) == n
		})
	}
	end(1)
	first := k.ended(t)
	k.upgrade()
	if got := k.ended(t); len(got) != 1 || got[0] != first[0] {
		t.Errorf("%v, want %v", got, first)
	}
	end(2)
	k.upgrade()
	if got := k.ended(t); len(got) != 2 || got[1] != first[0] {
		t.Errorf("%v, want %v last", got, first)
	}

	good, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	k.write(t, "listeners: {broken")
	if code, out := k.command("reload"); code == 0 {
		t.Errorf("a broken file was reloaded: %s", out)
	}
	failed := k.status(t).Config.Failed
	if failed == nil {
		t.Fatal("no failed reload")
	}
	k.crash()
	if f := k.status(t).Config.Failed; f == nil || !f.Time.Equal(failed.Time) || len(f.Errors) != len(failed.Errors) {
		t.Errorf("%+v, want %+v", f, failed)
	}
	if err := os.WriteFile(k.file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	k.upgrade() // reads the file
	if f := k.status(t).Config.Failed; f != nil {
		t.Errorf("%+v", f)
	}
}

// ended returns the ids of the flows that ended last.
func (k *kept) ended(t *testing.T) (ids []uint64) {
	t.Helper()
	list, err := k.admin.Ended(k.ctx(), api.Filter{}, false, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list.Flows {
		ids = append(ids, f.ID)
	}
	return ids
}
