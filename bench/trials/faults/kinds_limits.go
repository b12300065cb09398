//go:build linux

package main

import (
	"sync/atomic"
	"time"
)

// limitKinds are resources that come to their end.
var limitKinds = []*kind{
	{
		name: "descriptors", part: "Limits", title: "Out of descriptors",
		what:  "The relay may have 256 descriptors. 300 clients connect and hold what they have, and 100 new datagram clients come per second, for 4 s.",
		want:  "Flows that are there go on, of streams and of datagrams. A client that is accepted is also served; others wait in the kernel's queue until descriptors are free, and nobody is reset.",
		needs: needs{Files: 256},
		fault: func(w *testbed) error {
			if w.r.udp {
				go strangers(w, 100)
			}
			c := join(w, 300, streamPort, "", w.holder)
			time.Sleep(w.last(4 * time.Second))
			w.now.Store(int32(after))
			c.leave()
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.flowing(o, time.Second, 0.005)
			v.want(o.Notes["holders cut off"] == 0, "%.0f accepted clients cut off", o.Notes["holders cut off"])
			d, a := o.New.During, o.New.After
			v.want(d.Cut+a.Cut+d.Refused+a.Refused == 0, "%d of %d new clients cut off or refused", d.Cut+a.Cut+d.Refused+a.Refused, d.Tried+a.Tried)
			v.back(o, time.Second)
		},
	},
	{
		name: "burst", part: "Limits", title: "A burst at slow upstreams",
		what:  "The relay may have 1,500 descriptors, each upstream accepts one connection per 4 ms, and 3,000 clients with one message each come at the same time.",
		want:  "All of them are served; those for whom there is no room wait in the kernel's queue. Nobody is accepted and then reset.",
		needs: needs{Files: 1500},
		fault: func(w *testbed) error {
			for _, m := range w.members {
				m.pace.Store(int64(4 * time.Millisecond))
			}
			c := join(w, w.scaled(3000), streamPort, "", w.single(12*time.Second))
			for end := time.Now().Add(12 * time.Second); time.Now().Before(end) && w.noted("singles served")+w.noted("singles cut off")+w.noted("singles late") < w.noted("of a crowd, connected"); {
				time.Sleep(20 * time.Millisecond)
			}
			c.leave()
			for _, m := range w.members {
				m.pace.Store(0)
			}
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.want(o.Notes["singles cut off"] == 0, "%.0f of %.0f accepted clients cut off", o.Notes["singles cut off"], o.Notes["of a crowd, connected"])
			v.measured(o.Notes["singles late"] == 0, "%.0f clients without an answer after 12 s", o.Notes["singles late"])
			d, a := o.New.During, o.New.After
			v.want(d.Cut+a.Cut == 0, "%d of %d other new clients cut off", d.Cut+a.Cut, d.Tried+a.Tried)
			v.back(o, time.Second)
		},
	},
	{
		name: "memory", part: "Limits", title: "A limit of memory", alone: true,
		what:  "A cgroup gives the relay 96 MB. 6,000 clients send as much as they can to upstreams that do not read, so that each fills what the relay holds for a flow. (HAProxy and nginx cannot know of the limit; the number of their connections is what fits by their manuals.)",
		want:  "The relay is not killed. It ends flows that stand still before it harms one that moves: old flows do not notice.",
		needs: needs{Memory: 96 << 20},
		fault: func(w *testbed) error {
			c := join(w, w.scaled(6000), streamPort, "", pusher(wantDeaf, 256<<10, new(atomic.Int64)))
			time.Sleep(w.last(4 * time.Second))
			c.leave()
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.flowing(o, 2*time.Second, 0.01)
			v.back(o, 2*time.Second)
		},
	},
	{
		name: "oom", part: "Limits", title: "The kernel kills for want of memory",
		what:  "A cgroup gives the relay 96 MB. Another process in it takes memory, all at once, until the kernel's OOM killer has killed a process that carries traffic (`oom_score_adj` has it choose that one). Then the other process ends.",
		want:  "Every flow that is older than a second goes on with all of its bytes. Clients that come a second later are served.",
		needs: needs{Memory: oomLimit},
		fault: func(w *testbed) error {
			w.replace.Store(true)
			kills, err := w.exhaust()
			if err != nil {
				return err
			}
			w.note("processes killed", float64(kills))
			time.Sleep(w.last(2 * time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.kept(o)
			v.back(o, time.Second)
			v.welcomed(o)
			v.measured(o.Old.Pause.D() < 2*time.Second, "an old stream stood still for %v", o.Old.Pause.round())
		},
	},
	{
		name: "stalled", part: "Limits", title: "9,000 stalled flows", alone: true,
		what: "9,000 clients send as much as they can, up to 128 KiB each, to upstreams that do not read, and stay for 4 s.",
		want: "Old flows go on, and new clients are served within 2 s. The relay's own memory stays below 128 MB more than before.",
		fault: func(w *testbed) error {
			c := join(w, w.scaled(9000), streamPort, "", pusher(wantDeaf, 128<<10, new(atomic.Int64)))
			time.Sleep(w.last(4 * time.Second))
			c.leave()
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.unnoticed(o, 2*time.Second, 2*time.Second, 0.01)
			v.memory(o, 128)
		},
	},
}
