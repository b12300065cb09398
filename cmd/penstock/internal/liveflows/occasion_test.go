package liveflows

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A flow ends at its time only if the occasion still holds then: its member has not come up again, and its group has not changed its mind.
// It is scheduled once for each occasion.
func TestOccasionsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &spec.Group{
			Name: "g", Balance: "first", Down: spec.LiveFlows{What: "drain", After: time.Hour}, Eject: &spec.Eject{Failures: 1, For: 10 * time.Second, Max: 10 * time.Second, Share: 1},
			Members: []spec.Member{
				{Name: "a", Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "10.0.0.1", Port: 1}},
				{Name: "b", Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "10.0.0.2", Port: 1}},
			},
		}
		set := upstream.NewSet(upstream.Options{})
		defer set.Close()
		set.Apply([]*spec.Group{cfg})
		var lease upstream.Lease
		m, _ := set.Group("g").Pick(&lease, upstream.Client{})
		defer lease.Release()
		eject := func() deadline {
			lease.Connected(errors.New("refused"), 0)
			synctest.Wait()
			end, said := m.End()
			if end == nil || said != cfg.Down {
				t.Fatalf("%+v, %+v", end, said)
			}
			return deadline{member: m, end: end}
		}

		var mu sync.Mutex
		var ended []relay.Cause
		s := newSchedule(func(d deadline) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, d.end.Cause)
		})
		defer s.close()
		wait := func(d time.Duration, what string, want ...relay.Cause) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ended, want) {
				t.Errorf("%s: %v, want %v", what, ended, want)
			}
			ended = nil
		}

		d := eject()
		for _, after := range []time.Duration{5 * time.Second, time.Second, 5 * time.Second} {
			d.at, d.id = time.Now().Add(after), 1
			s.add(d)
		}
		wait(6*time.Second, "while it is ejected", relay.CauseDown)
		d.at, d.id = time.Now().Add(20*time.Second), 2
		s.add(d)
		wait(time.Hour, "after it is no longer ejected")

		first := eject()
		time.Sleep(11 * time.Second)
		d = eject()
		first.at, first.id = time.Now(), 3
		s.add(first)
		wait(0, "at another ejection")

		keep := *cfg
		keep.Down.What = "keep"
		set.Apply([]*spec.Group{&keep})
		d.at = time.Now()
		s.add(d)
		wait(0, "when the configuration says keep")
		set.Apply([]*spec.Group{cfg})
		s.add(d)
		wait(0, "when it says drain again", relay.CauseDown)

		s.add(deadline{at: time.Now().Add(time.Hour), id: 4, end: removed})
		s.add(deadline{at: time.Now(), id: 4, end: disabled})
		wait(0, "when an operator disables a member that was removed", relay.CauseRemoved)
	})
}
