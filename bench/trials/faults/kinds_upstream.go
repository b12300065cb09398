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
		fault: func(w *testbed) error {
			w.hits(0, 1)
			w.members[0].kill()
			w.members[1].kill()
			w.begins()
			time.Sleep(w.last(4 * time.Second))
			return restartMembers(w, 0, 1)
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
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
		fault: func(w *testbed) error {
			w.hits(0)
			if err := w.members[0].vanish(); err != nil {
				return err
			}
			time.Sleep(w.last(4 * time.Second))
			return w.members[0].appear()
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.hit(o)
			v.served(o, 1500*time.Millisecond)
			v.flowing(o, time.Second, 0.005)
		},
	},
	{
		name: "paused", part: "Upstreams", title: "A member stopped",
		what:  "One of four members is stopped, as by SIGSTOP: its kernel still accepts connections, and nothing is answered. After 8 s it goes on.",
		want:  "Health checks that expect an answer notice within two seconds; until then, a share of the new clients waits. Old flows at the member go on with all of their bytes once it does.",
		needs: needs{Verify: true},
		fault: func(w *testbed) error {
			w.hits(0)
			w.members[0].pause()
			time.Sleep(w.last(8 * time.Second))
			w.members[0].resume()
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.hit(o)
			d := o.New.During
			v.want(d.Refused+d.Cut == 0, "%d of %d new clients refused or cut off", d.Refused+d.Cut, d.Tried)
			v.measured(float64(d.Late+d.Slow) <= 0.1*float64(d.Tried), "%d of %d new clients waited for more than a second", d.Late+d.Slow, d.Tried)
			v.flowing(o, time.Second, 0.005)
		},
	},
	{
		name: "deaf", alone: true, part: "Upstreams", title: "Upstreams that never read",
		what:  "200 clients send as much as they can to upstreams that never read.",
		want:  "Other flows do not notice, and each of the stalled ones holds a bounded amount of memory.",
		fault: pushed200(wantDeaf), expect: unnoticedWithin(32),
	},
	{
		name: "drip", alone: true, part: "Upstreams", title: "Upstreams that take one byte a second",
		what:  "200 clients send as much as they can to upstreams that read and write one byte per second.",
		want:  "Other flows do not notice, and hardly any CPU time goes into the slow ones. Until all buffers are full, as much is relayed as the CPUs can carry, and whoever comes then waits for a CPU: for the longer, the more a relay takes of each client.",
		fault: pushed200(wantDrip), expect: unnoticedWithin(32),
	},
	{
		name: "flapping", part: "Upstreams", title: "Members that come and go",
		what: "For 5 s, each of four members in turn refuses connects for 300 ms; connections that it has go on.",
		want: "Connects are tried at another member. At most one new client in fifty is cut off: one whose connection was in the queue of a listener that closed.",
		fault: func(w *testbed) error {
			for i, end := 0, time.Now().Add(w.last(5*time.Second)); time.Now().Before(end); i++ {
				m := w.members[i%members]
				m.closeListener()
				time.Sleep(300 * time.Millisecond)
				if err := m.start(); err != nil {
					return err
				}
			}
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			// A connection that waits in the queue of a listener is reset when the listener closes.
			d := o.New.During
			v.want(float64(d.Refused+d.Cut) <= 0.02*float64(d.Tried), "%d of %d new clients refused or cut off", d.Refused+d.Cut, d.Tried)
			v.measured(d.P99.D() < 500*time.Millisecond, "new clients waited %v (p99)", d.P99.round())
			v.back(o, time.Second)
			v.flowing(o, time.Second, 0.005)
		},
	},
	{
		name: "all-down", part: "Upstreams", title: "All members down, and back",
		what: "For 3 s all members refuse connects; connections that they have go on.",
		want: "Old flows go on. New clients are told at once, and are served within 2 s after the first member is back.",
		fault: func(w *testbed) error {
			for _, m := range w.members {
				m.closeListener()
			}
			time.Sleep(w.last(3 * time.Second))
			return restartMembers(w, 0, 1, 2, 3)
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.flowing(o, time.Second, 0.005)
			v.measured(o.New.During.Late == 0, "%d of %d new clients were not told within %v", o.New.During.Late, o.New.During.Tried, newPatience)
			v.back(o, 2*time.Second)
		},
	},
}

// pushed200 returns a fault in which 200 clients send as much as they can to upstreams of some kind.
func pushed200(want [8]byte) func(w *testbed) error {
	return func(w *testbed) error {
		leave, err := w.push(push{Clients: 200, Want: want, Most: 64 << 20})
		if err != nil {
			return err
		}
		time.Sleep(w.last(4 * time.Second))
		return leave()
	}
}

// restartMembers starts members again.
func restartMembers(w *testbed, members ...int) error {
	for _, i := range members {
		if err := w.members[i].start(); err != nil {
			return err
		}
	}
	return nil
}
