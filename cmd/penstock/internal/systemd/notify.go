package systemd

import (
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready tells that the daemon serves: at the start, and at the end of a reload.
func Ready(status string) error { return notify("READY=1\nSTATUS=" + oneLine(status)) }

// Reloading tells that a reload begins; Ready must follow, whether it succeeds
// or not. The manager of Type=notify-reload wants the time of it
// (MONOTONIC_USEC) to tell this reload from an earlier one.
func Reloading(status string) error {
	return notify("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec() + "STATUS=" + oneLine(status))
}

// Stopping tells that the daemon drains, and for how long at most: the manager
// does not kill it meanwhile, also where TimeoutStopSec= is shorter.
func Stopping(status string, most time.Duration) error {
	return notify(fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", (most + stopReserve).Microseconds(), oneLine(status)))
}

// stopReserve is for what is done after the drain.
const stopReserve = 5 * time.Second

// Status gives the line that systemctl status shows.
func Status(status string) error { return notify("STATUS=" + oneLine(status)) }

// tell sends assignments to NOTIFY_SOCKET; none is no error.
func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	return nil
}

// line keeps a status from being read as further assignments.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// Watchdog tells the manager's watchdog (WatchdogSec=), at half its interval,
// that all is well, for as long as alive says so. alive may take its time, and
// may never return: then nothing is told, and the manager restarts the daemon.
// Without a watchdog nothing happens, and alive is not called. stop ends it, and
// does not wait for alive.
func Watchdog(alive func() bool) (stop func(), err error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("read the watchdog's interval: %w", err)
	}
	if interval == 0 {
		return func() {}, nil
	}
	quit := make(chan struct{})
	go func() {
		tick := time.NewTicker(max(interval/2, time.Millisecond))
		defer tick.Stop()
		for {
			if alive() {
				// A manager that cannot be told will notice by itself.
				_ = notify("WATCHDOG=1")
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit) }, nil
}
