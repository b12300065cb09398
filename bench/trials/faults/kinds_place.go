//go:build linux

package main

import (
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// steady is what is done where the place is the fault: nothing, and a reload.
func steady(w *testbed) error {
	w.replace.Store(true)
	time.Sleep(w.last(time.Second))
	if err := w.r.reload(w); err != nil {
		w.note("reloads refused", 1)
	} else {
		w.note("reloads", 1)
	}
	time.Sleep(w.last(2 * time.Second))
	return nil
}

func expectSteady(o *outcome, v *verdict) {
	v.alive(o)
	v.streams(o)
	v.want(o.Notes["reloads refused"] == 0, "a reload was refused")
	v.served(o, 500*time.Millisecond)
	v.flowing(o, time.Second, 0.005)
}

// placeKinds are places that are not as usual, and networks.
var placeKinds = []*kind{
	{
		name: "no-capabilities", part: "Places", title: "No capabilities", needs: needs{NoCaps: true},
		what:  "The relay is started without any capability, with no_new_privs, and as another user than root. The configuration is read again.",
		want:  "Everything works.",
		fault: steady, expect: expectSteady,
	},
	{
		name: "read-only", part: "Places", title: "A read-only root", needs: needs{ReadOnly: true},
		what:  "All file systems are read-only, apart from the folder with the relay's sockets. The configuration is read again.",
		want:  "Everything works.",
		fault: steady, expect: expectSteady,
	},
	{
		name: "clock", part: "Places", title: "The monotonic clock passes 2³² ms", needs: needs{Monotonic: 1<<32*time.Millisecond - 5*time.Second},
		what: "In a time namespace, the relay's monotonic clock passes 2³² milliseconds (49.7 days), where a counter of milliseconds in 32 bits begins anew. The wall clock cannot be stepped for one process alone, and is not.",
		want: "Nobody notices.",
		fault: func(w *testbed) error {
			time.Sleep(w.last(7 * time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.unnoticed(o, 500*time.Millisecond, time.Second, 0.005)
		},
	},
	{
		name: "loss", part: "Networks", title: "Packets are lost", needs: needs{Lossy: true},
		what: "2% of the packets between the relay and everybody else are lost, for 5 s.",
		want: "No stream is lost, no byte is wrong, and at most one new client in a hundred is refused or cut off: a connect whose packets are lost again and again.",
		fault: func(w *testbed) error {
			w.link.loss.Store(20_000)
			time.Sleep(w.last(5 * time.Second))
			w.link.loss.Store(0)
			w.note("packets lost", float64(w.link.lost.Load()))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			d := o.New.During
			v.want(float64(d.Cut+d.Refused) <= 0.01*float64(d.Tried), "%d of %d new clients refused or cut off", d.Cut+d.Refused, d.Tried)
			v.measured(float64(d.Late) <= 0.02*float64(d.Tried), "%d of %d new clients without an answer after %v", d.Late, d.Tried, newPatience)
			v.measured(o.Old.share() <= 0.12, "%.2f%% of the old flows' datagrams lost", 100*o.Old.share()) // four packets, some of them of several fragments
			v.back(o, time.Second)
		},
	},
	{
		name: "black-hole", part: "Networks", title: "Large packets disappear", needs: needs{Lossy: true},
		what: "For 3 s, packets of more than 600 bytes are lost on their way, and no ICMP error says so.",
		want: "Flows go on with all of their bytes once it is over, and small messages pass meanwhile.",
		fault: func(w *testbed) error {
			w.link.largest.Store(600)
			time.Sleep(w.last(3 * time.Second))
			w.link.largest.Store(0)
			w.note("packets lost", float64(w.link.lost.Load()))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.served(o, 500*time.Millisecond)
		},
	},
	{
		name: "mtu", part: "Networks", title: "The MTU becomes 576",
		what: "The device of the relay, and of everybody else, gets an MTU of 576 bytes, for 4 s.",
		want: "Flows go on; datagrams that are longer arrive in fragments.",
		fault: func(w *testbed) error {
			set := func(mtu string) error {
				if err := proc.IP("link set w0 mtu " + mtu); err != nil {
					return err
				}
				return w.space.run(func() error { return proc.IP("link set r0 mtu " + mtu) })
			}
			if err := set("576"); err != nil {
				return err
			}
			time.Sleep(w.last(4 * time.Second))
			return set("1500")
		},
		expect: func(o *outcome, v *verdict) {
			v.unnoticed(o, time.Second, 2*time.Second, 0.01)
		},
	},
}
