package keeper

import "strconv"

var reasons = [...]string{First: "first", Crash: "crash", Upgraded: "upgrade", Rollback: "rollback", Restart: "restart"}

// String returns "first", "crash", "upgrade", "rollback" or "restart".
func (r Reason) String() string { return nameOf(reasons[:], int(r)) }

var states = [...]string{NoUpgrade: "none", Checking: "checking", HandingOver: "handing-over", Starting: "starting", Proving: "proving",
	Done: "done", Checked: "checked", Refused: "refused", RolledBack: "rolled-back"}

// String returns the state in small letters, such as "handing-over".
func (s State) String() string { return nameOf(states[:], int(s)) }

var kinds = [...]string{WorkerStarted: "worker-started", WorkerReady: "worker-ready", WorkerDied: "worker-died", WorkerEnded: "worker-ended",
	WorkerKilled: "worker-killed", WorkerLied: "worker-lied", StartDelayed: "start-delayed", FellBack: "fell-back",
	UpgradeStep: "upgrade", KeeperUpgraded: "keeper-upgraded", KeeperKept: "keeper-kept", Problem: "problem", WorkerWrote: "worker-wrote",
	WorkerLingers: "worker-lingers"}

// String returns the kind in small letters, such as "worker-died".
func (k Kind) String() string { return nameOf(kinds[:], int(k)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return strconv.Itoa(i)
}
