//go:build linux

package main

import (
	"syscall"
	"time"
)

// processKinds are faults of the relay's own processes.
var processKinds = []*kind{
	{
		name: "stopped", part: "Processes", title: "The relay stopped for 2 s", short: true,
		what: "All processes that carry traffic get SIGSTOP and, 2 s later, SIGCONT, as when a virtual machine is paused.",
		want: "Every flow goes on with all of its bytes, and clients that came meanwhile are served.",
		fault: func(w *world) error {
			w.service.signal(syscall.SIGSTOP)
			time.Sleep(w.last(2 * time.Second))
			w.service.signal(syscall.SIGCONT)
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.alive(o)
			v.kept(o)
			v.served(o, 3*time.Second)
			v.back(o, time.Second)
		},
	},
	{
		name: "kill-9", part: "Processes", title: "kill -9", short: true,
		what: "All processes that carry traffic get SIGKILL. A service manager starts what has ended altogether again after 100 ms.",
		want: "Every flow that is older than a second goes on with all of its bytes. Clients that come a second later are served.",
		fault: func(w *world) error {
			w.restart = true
			w.note("processes killed", float64(w.service.signal(syscall.SIGKILL)))
			time.Sleep(w.last(2 * time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.kept(o)
			v.back(o, time.Second)
			v.want(o.New.After.Refused+o.New.After.Cut == 0, "%d of %d new clients refused or cut off after it", o.New.After.Refused+o.New.After.Cut, o.New.After.Tried)
			v.measured(o.Old.Pause.D() < 2*time.Second, "an old stream stood still for %v", o.Old.Pause.round())
		},
	},
}
