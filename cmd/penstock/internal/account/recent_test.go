package account

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

// The flows that ended last are there, the youngest first; those with a problem are there
// even when many good ones came after them.
func TestRecent(t *testing.T) {
	testnet.CheckLeaks(t)
	r := NewRecent()
	defer r.Close()
	enter := func(id uint64, c relay.Cause) {
		e := failedWith(c)
		e.ID, e.Value = id, r
		r.Record(e)
		testwait.Until(t, fmt.Sprintf("flow %d is kept", id), func() bool {
			if r.log.Stats().Dropped() > 0 {
				t.Fatal("a flow was dropped")
			}
			last := r.Last(false)
			return len(last) > 0 && last[0].ID == id
		})
	}
	enter(1, relay.CauseEnd)
	enter(2, relay.CauseRefused)
	enter(3, relay.CauseConnectTimeout)
	for i := range MaxRecent + 10 {
		e := failedWith(relay.CauseEnd)
		e.ID = uint64(100 + i)
		r.Record(e)
	}
	enter(5000, relay.CauseEnd)
	all, problems := r.Last(false), r.Last(true)
	if len(all) != MaxRecent || all[0].ID != 5000 || all[1].ID != 100+MaxRecent+9 || all[MaxRecent-1].ID != all[1].ID-MaxRecent+2 {
		t.Errorf("%d flows, first %d, then %d, last %d", len(all), all[0].ID, all[1].ID, all[len(all)-1].ID)
	}
	if len(problems) != 2 || problems[0].ID != 3 || problems[1].ID != 2 {
		t.Errorf("problems are %v", problems)
	}
	if all[0].Value != nil || problems[0].Value != nil {
		t.Error("a flow is kept alive by its record")
	}
	(*Recent)(nil).Record(failedWith(relay.CauseEnd))
	if (*Recent)(nil).Last(false) != nil {
		t.Error("a nil Recent keeps something")
	}
}
