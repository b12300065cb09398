package host

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals are the signals that the daemon has received. Each kind has a channel of its own, because
// package signal drops what a channel has no room for: many SIGHUP must not displace a SIGTERM.
// Those of a kind that come before one has been received count as one.
type Signals struct {
	End    chan os.Signal // SIGINT and SIGTERM
	Reload chan os.Signal // SIGHUP
	Reopen chan os.Signal // SIGUSR1

	Upgrade chan os.Signal // SIGUSR2, which is for the keeper
}

// NotifySignals makes this process receive its signals, until Close is called.
func NotifySignals() Signals {
	s := Signals{make(chan os.Signal, 2), make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)}
	signal.Notify(s.End, os.Interrupt, syscall.SIGTERM)
	signal.Notify(s.Reload, syscall.SIGHUP)
	signal.Notify(s.Reopen, syscall.SIGUSR1)
	signal.Notify(s.Upgrade, syscall.SIGUSR2)
	return s
}

// Settle waits until each signal that this process has taken is in its channel. Between the two are Go's signal handler, which notes it, and
// a goroutine, which may not run for a while on a busy machine: whoever looks for a signal for the last time must wait for that one.
func (s Signals) Settle() {
	none := make(chan os.Signal, 1)
	signal.Notify(none, syscall.SIGHUP)
	signal.Stop(none) // which waits for what is under way, whichever channel it is for
}

// Close makes SIGINT and SIGTERM end the process again. The others go on without effect, because
// their default would kill a daemon that is about to exit.
func (s Signals) Close() { signal.Stop(s.End) }
