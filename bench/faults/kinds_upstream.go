//go:build linux

package main

import (
	"time"
)

// upstreamKinds are faults of members.
var upstreamKinds = []*kind{
	{
		name: "killed", part: "Upstreams", title: "Two of four members killed", short: true, sudden: true,
		what: "The processes of two members die: their connections are reset, and connects are refused.",
		want: "Flows at the other members do not notice. Flows at the dead ones end at once, so that clients can come again. No new client is refused or cut off.",
		fault: func(w *world) error {
			w.hits(0, 1)
			w.members[0].kill()
			w.members[1].kill()
			w.begins()
			time.Sleep(w.last(4 * time.Second))
			return again(w, 0, 1)
		},
		expect: func(o *outcome, v *verdict) {
			v.alive(o)
			v.kept(o)
			v.want(o.Old.HitStalled == 0, "%d of %d clients of dead members were not told", o.Old.HitStalled, o.Old.Hit)
			v.measured(o.Old.HitEnd.D() < time.Second, "a client of a dead member was told only after %v", o.Old.HitEnd.round())
			v.served(o, 500*time.Millisecond)
			v.flowing(o, time.Second, 0.005)
		},
	},
	{
		name: "vanished", part: "Upstreams", title: "A member whose packets get no answer",
		what: "The address of one of four members is taken away, so that whatever is sent to it disappears. After 4 s it comes back.",
		want: "Flows at the other members do not notice. New clients wait for one connect timeout (1 s) at most, and only until health checks have noticed. When the member is back, its old flows go on where they were.",
		fault: func(w *world) error {
			w.hits(0)
			if err := w.members[0].vanish(); err != nil {
				return err
			}
			time.Sleep(w.last(4 * time.Second))
			return w.members[0].appear()
		},
		expect: func(o *outcome, v *verdict) {
			v.alive(o)
			v.kept(o)
			v.hit(o)
			v.served(o, 1500*time.Millisecond)
			v.flowing(o, time.Second, 0.005)
		},
	},
}

// again starts members again.
func again(w *world, members ...int) error {
	for _, i := range members {
		if err := w.members[i].start(); err != nil {
			return err
		}
	}
	return nil
}
