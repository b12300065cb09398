package console

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// keeperPairs returns the state of the keeper in one line, or three.
func keeperPairs(s *api.Status) [][2]string {
	k := s.Keeper
	if !k.Up {
		return [][2]string{{"keeper", "gone: flows would end with the worker; start the service again when that suits"}}
	}
	line := fmt.Sprintf("pid %d, holds %s%s; the worker has run for %s", k.PID, plural(k.Flows, "flow"), endWithWorker(s.Resources.TLSFlows), age(s.Time.Sub(k.WorkerSince).Seconds()))
	if !k.Healthy {
		line += ", on trial after an upgrade"
	}
	list := [][2]string{{"keeper", line}}
	for _, w := range k.Lingering {
		list = append(list, [2]string{"", fmt.Sprintf("worker %d lingers with the TLS of flows since %s, until %s at most", w.PID, w.Since.Local().Format(time.DateTime), w.Until.Local().Format(time.DateTime))})
	}
	if k.Last != nil {
		list = append(list, [2]string{"", starts(k)}, [2]string{"", lastStart(k.Last)})
	}
	return list
}

// endWithWorker says how many flows are held by nobody but the worker; empty: none.
func endWithWorker(n int64) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "; 1 with TLS ends with the worker"
	}
	return "; " + count(n) + " with TLS end with the worker"
}

// starts counts the starts of workers by reason.
func starts(k *api.Keeper) string {
	var list []string
	for _, c := range k.Starts {
		if c.Count > 0 {
			list = append(list, startCount(c))
		}
	}
	return printable(fmt.Sprintf("since %s: %s", k.Since.Local().Format(time.DateTime), strings.Join(list, ", ")))
}

// lastStart tells about the latest start of a worker.
func lastStart(w *api.WorkerStart) string {
	return printable(fmt.Sprintf("last start %s, %s: %s", w.Time.Local().Format(time.DateTime), startWhy(w), outcome(w)))
}

// startCount tells how often a worker was started for one reason.
func startCount(c api.StartCount) string {
	if c.Reason == "crash" && c.Count != 1 {
		return count(c.Count) + " crashes"
	}
	return plural(c.Count, c.Reason)
}

// startWhy tells why a worker was started.
func startWhy(w *api.WorkerStart) string {
	switch w.Reason {
	case "crash":
		return "after " + w.Cause
	case "rollback":
		return "to undo an upgrade (" + w.Cause + ")"
	case "upgrade":
		return "for the upgrade to " + w.Version
	}
	return "for a change of the configuration"
}

// outcome tells what became of the flows at the start of a worker.
func outcome(w *api.WorkerStart) string {
	text := fmt.Sprintf("%s continued, %s lost, %s without traffic", plural(w.Restored, "flow"), count(w.TotalLost()), span(w.Pause))
	var why []string
	for _, l := range w.Lost {
		why = append(why, count(l.Count)+" "+l.Reason)
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}

// keeperLine returns the state of the keeper as a line of the overview; nil: there is none.
func keeperLine(k *api.Keeper) line {
	switch {
	case k == nil:
		return nil
	case !k.Up:
		return line{{"keeper ", faint}, {"gone: flows would end with the worker", bad}}
	}
	l := line{{"keeper ", faint}, {"holds " + plural(k.Flows, "flow"), plain}}
	if !k.Healthy {
		l = append(l, piece{", on trial after an upgrade", warn})
	}
	if w := k.Last; w != nil {
		style := plain
		if w.Reason == "crash" || w.Reason == "rollback" {
			style = warn
		}
		l = append(l, piece{"  last start ", faint}, piece{printable(clock(w.Time) + " " + startWhy(w) + ": " + outcome(w)), style})
	}
	return l
}
