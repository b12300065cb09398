package app

import (
	"os"
	"os/signal"
	"syscall"
)

// signals are the signals that the daemon has received. Each kind has a channel of its own, because
// package signal drops what a channel has no room for: many SIGHUP must not displace a SIGTERM.
// Those of a kind that come before one has been received count as one.
type signals struct {
	end    chan os.Signal // SIGINT and SIGTERM
	reload chan os.Signal // SIGHUP
	reopen chan os.Signal // SIGUSR1

	upgrade chan os.Signal // SIGUSR2, which is for the keeper
}

func notifySignals() signals {
	s := signals{make(chan os.Signal, 2), make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan os.Signal, 1)}
	signal.Notify(s.end, os.Interrupt, syscall.SIGTERM)
	signal.Notify(s.reload, syscall.SIGHUP)
	signal.Notify(s.reopen, syscall.SIGUSR1)
	signal.Notify(s.upgrade, syscall.SIGUSR2)
	return s
}

// close makes SIGINT and SIGTERM end the process again. The others go on without effect, because
// their default would kill a daemon that is about to exit.
func (s signals) close() { signal.Stop(s.end) }
