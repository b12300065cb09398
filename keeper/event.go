package keeper

import (
	"fmt"
	"strings"
	"time"
)

// Kind is the kind of an [Event].
type Kind uint8

const (
	WorkerStarted  Kind = iota // a process was started
	WorkerReady                // it is ready
	WorkerDied                 // it ended without saying that it would
	WorkerEnded                // it ended as it had said
	WorkerKilled               // the keeper ends it; Text says why
	WorkerLied                 // it sent something that the keeper refuses; Text says what
	StartDelayed               // the next start is in Wait
	FellBack                   // the binary died too often; the last good one is used
	UpgradeStep                // an upgrade has reached another state
	KeeperUpgraded             // the keeper executed another binary in place
	KeeperKept                 // it could not; Text says why
	Problem                    // something else went wrong; Text says what
	WorkerWrote                // it wrote Text, and ended before it connected
	WorkerLingers              // it has handed over, and goes on for at most Wait
)

// Event is something that happened to a worker, for [Config.Log].
type Event struct {
	Kind    Kind
	PID     int    // of the worker that it is about
	Reason  Reason // why that was started
	Binary  string
	Died    Death         // for WorkerDied and WorkerEnded
	Wait    time.Duration // for StartDelayed
	Items   int           // what is held
	Upgrade Upgrade       // for UpgradeStep, and for WorkerKilled on standby
	Text    string
}

// String returns the event as a line of text.
func (e Event) String() string {
	var b strings.Builder
	switch e.Kind {
	case WorkerStarted:
		fmt.Fprintf(&b, "worker %d started (%s, %d items held): %s", e.PID, e.Reason, e.Items, e.Binary)
	case WorkerReady:
		fmt.Fprintf(&b, "worker %d is ready", e.PID)
	case WorkerDied:
		fmt.Fprintf(&b, "worker %d died: %s; %d items held", e.PID, e.Died, e.Items)
	case WorkerEnded:
		fmt.Fprintf(&b, "worker %d ended: %s", e.PID, e.Died)
	case WorkerKilled:
		fmt.Fprintf(&b, "worker %d is killed", e.PID)
	case WorkerWrote:
		fmt.Fprintf(&b, "worker %d wrote before it connected", e.PID)
	case WorkerLied:
		fmt.Fprintf(&b, "worker %d sent what is not accepted", e.PID)
	case WorkerLingers:
		fmt.Fprintf(&b, "worker %d has handed over, and goes on for at most %s", e.PID, e.Wait)
	case StartDelayed:
		fmt.Fprintf(&b, "next start of the worker in %s", e.Wait)
	case FellBack:
		fmt.Fprintf(&b, "the last binary that worked is used: %s", e.Binary)
	case UpgradeStep:
		b.WriteString("upgrade")
		if e.Upgrade.ID != 0 {
			fmt.Fprintf(&b, " %d", e.Upgrade.ID)
		}
		if e.Upgrade.Binary != "" {
			b.WriteString(" to " + e.Upgrade.Binary)
		}
		fmt.Fprintf(&b, ": %s", e.Upgrade.State)
		if e.Upgrade.Reason != "" {
			fmt.Fprintf(&b, ": %s", e.Upgrade.Reason)
		}
	case KeeperUpgraded:
		fmt.Fprintf(&b, "the keeper runs %s, worker %d goes on", e.Binary, e.PID)
	case KeeperKept:
		b.WriteString("the keeper stays at its version")
	default:
		b.WriteString("keeper")
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	return b.String()
}

// String returns how the worker ended, such as "signal 9" or "exit code 1".
func (d Death) String() string {
	s := fmt.Sprintf("exit code %d", d.Code)
	if d.Signal != 0 {
		s = fmt.Sprintf("signal %d", d.Signal)
	}
	if d.Why != "" {
		s += " (" + d.Why + ")"
	}
	return s
}
