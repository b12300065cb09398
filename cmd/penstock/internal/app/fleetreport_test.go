package app

import (
	"reflect"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A report says of each configured listener, and of all flows, how clients were served.
func TestServedOf(t *testing.T) {
	c := account.NewCounters()
	flow := func(listener, member string, cause relay.Cause, down int64, firstByte time.Duration) {
		s := c.Series(account.Key{Listener: listener})
		s.Begin()
		to := c.Series(account.Key{Listener: listener, Route: "r", Group: "g", Member: member})
		s.Move(to, account.Volume{}, account.Volume{})
		to.Attempt(nil)
		e := &account.Entry{}
		e.Cause, e.Down.Written, e.FirstByte = cause, down, firstByte
		to.End(e)
	}
	flow("web", "one", relay.CauseEnd, 1000, 3*time.Millisecond)
	flow("web", "two", relay.CauseUpstreamReset, 200_000, 250*time.Millisecond)
	flow("web", "two", relay.CauseFirstByte, 0, 0)
	flow("gone", "one", relay.CauseEnd, 5, 7*time.Second)
	c.Series(account.Key{Listener: "web"}).Begin() // is open
	live := func(add func(*account.Series, account.Volume, account.Volume)) {
		add(c.Series(account.Key{Listener: "web"}), account.Volume{}, account.Volume{Bytes: 1})
	}
	all, each := servedOf(c.Snapshot(nil, live), []*spec.Listener{{Name: "web"}, {Name: "idle"}})
	web := fleet.Served{
		Begun: 4, Ends: map[string]int64{"end": 1, "upstream-reset": 1, "first-byte": 1}, BytesDown: 201_001,
		Sizes: []int64{1, 1, 1, 0, 0, 1, 0, 0}, FirstByte: []int64{2, 0, 0, 0},
	}
	if got := each["web"]; !reflect.DeepEqual(got, web) {
		t.Errorf("%+v, want %+v", got, web)
	}
	if got := each["idle"]; len(each) != 2 || got.Begun != 0 {
		t.Errorf("%+v", each)
	}
	if all.Begun != 5 || all.Ends["end"] != 2 || all.BytesDown != 201_006 || all.FirstByte[3] != 1 || all.Sizes[1] != 2 {
		t.Errorf("%+v", all)
	}
}

// Whoever judges a canary knows each cause by which a flow can end: a new one needs a line in fleet/criteria.go.
func TestCausesAreJudged(t *testing.T) {
	for c := relay.CauseEnd; int(c) < relay.NumCauses; c++ {
		if !fleet.KnowsCause(c.String()) {
			t.Errorf("the cause %v is neither judged nor known not to be", c)
		}
	}
}
