//go:build linux

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// processKinds are faults of the relay's own processes.
var processKinds = []*kind{
	{
		name: "stopped", part: "Processes", title: "The relay stopped for 2 s", short: true,
		what: "All processes that carry traffic get SIGSTOP and, 2 s later, SIGCONT, as when a virtual machine is paused.",
		want: "Every flow goes on with all of its bytes, and clients that came meanwhile are served.",
		fault: func(w *testbed) error {
			w.service.Signal(syscall.SIGSTOP)
			time.Sleep(w.last(2 * time.Second))
			w.service.Signal(syscall.SIGCONT)
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.served(o, 3*time.Second)
			v.back(o, time.Second)
		},
	},
	{
		name: "kill-9", part: "Processes", title: "kill -9", short: true,
		what: "All processes that carry traffic get SIGKILL. A service manager starts what has ended altogether again after 100 ms.",
		want: "Every flow that is older than a second goes on with all of its bytes. Clients that come a second later are served.",
		fault: func(w *testbed) error {
			w.replace.Store(true)
			w.note("processes killed", float64(w.service.Signal(syscall.SIGKILL)))
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
		name: "kill-all", part: "Processes", title: "kill -9 of everything",
		what: "All processes of the relay get SIGKILL, also the one that would start another. A service manager starts the relay again after 100 ms.",
		want: "Nothing of the old flows is left, and their clients are told at once. New clients are served within a second.",
		fault: func(w *testbed) error {
			w.replace.Store(true)
			for _, pid := range w.service.Tree() {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(w.last(2 * time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.intact(o)
			v.want(o.Old.Stalled == 0, "%d of %d clients of old streams were not told", o.Old.Stalled, o.Old.Streams)
			v.welcomed(o)
			v.back(o, time.Second)
		},
	},
	{
		name: "reloads", part: "Processes", title: "300 reloads",
		what: "The configuration is read again 300 times, or as often as can be done in 15 s.",
		want: "All 300 are done. Old flows go on, new clients are served all the time, and no processes, descriptors or memory pile up.",
		fault: func(w *testbed) error {
			w.replace.Store(true)
			for i, end := 0, time.Now().Add(w.last(15*time.Second)); i < 300 && time.Now().Before(end); i++ {
				if err := w.r.reload(w); err != nil {
					w.note("reloads refused", 1)
				} else {
					w.note("reloads", 1)
				}
			}
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.carries(o)
			v.want(o.Notes["reloads refused"] == 0, "%.0f reloads were refused", o.Notes["reloads refused"])
			v.measured(o.Notes["reloads"] == 300, "only %.0f reloads in %.0f s", o.Notes["reloads"], o.Lasted)
			v.served(o, time.Second)
			v.flowing(o, time.Second, 0.005)
			v.memory(o, 64)
			v.measured(o.Processes <= 8, "%d processes at the same time", o.Processes)
		},
	},
	{
		name: "config", part: "Processes", title: "Garbage as configuration", short: true,
		what: "30 times, the configuration is replaced by random bytes, cut short with a few of them behind, or damaged, and read again; then the good one.",
		want: "The running configuration goes on, nobody notices, and the good one is taken at the end.",
		fault: func(w *testbed) error {
			w.replace.Store(true)
			path := filepath.Join(w.dir, w.r.file)
			good, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			write := func(text []byte) error { // a reload never finds half of it
				if err := os.WriteFile(path+".new", text, 0o644); err != nil {
					return err
				}
				return os.Rename(path+".new", path)
			}
			for i := range w.scaled(30) {
				bad := random(500)
				switch i % 3 {
				case 1:
					bad = append(bytes.Clone(good[:len(good)/2+rand.IntN(len(good)/4)]), "\n}{[\x00"...)
				case 2:
					bad = bytes.Replace(good, []byte("main"), []byte("m ain }{"), 1+rand.IntN(3))
				}
				if err := write(bad); err != nil {
					return err
				}
				w.r.nudge(w)
				time.Sleep(50 * time.Millisecond)
			}
			if err := write(good); err != nil {
				return err
			}
			if err := w.r.reload(w); err != nil {
				w.note("good one refused", 1)
			}
			time.Sleep(w.last(time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.alive(o)
			v.streams(o)
			v.want(o.Notes["good one refused"] == 0, "the good configuration was refused afterwards")
			v.served(o, time.Second)
			v.flowing(o, time.Second, 0.02)
		},
	},
}
