package systemd

import (
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A Manager is told the daemon's state. The zero Manager sends it to NOTIFY_SOCKET, or nowhere if that is
// not set.
type Manager struct {
	// Through, if not nil, is given the state instead. The manager may listen only to the service's main
	// process, which then passes it on.
	Through func(state string)
}

// Ready reports that the daemon serves: at the start, and at the end of a reload.
func (m *Manager) Ready(status string) error {
	return m.notify("READY=1\nSTATUS=" + oneLine(status))
}

// Reloading reports the beginning of a reload; Ready must follow, whether it succeeds or not. With
// Type=notify-reload the manager needs its time (MONOTONIC_USEC) to tell this reload from an
// earlier one.
func (m *Manager) Reloading(status string) error {
	return m.notify("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec() + "STATUS=" + oneLine(status))
}

// Stopping reports that the daemon drains, for at most the given time: the manager does not kill
// it meanwhile, even if TimeoutStopSec= is shorter.
func (m *Manager) Stopping(status string, most time.Duration) error {
	return m.notify(fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d\nSTATUS=%s", (most + stopReserve).Microseconds(), oneLine(status)))
}

// stopReserve is the time for what is done after the drain.
const stopReserve = 5 * time.Second

// Status sets the line that systemctl status shows.
func (m *Manager) Status(status string) error { return m.notify("STATUS=" + oneLine(status)) }

func (m *Manager) notify(state string) error {
	if m.Through != nil {
		m.Through(state)
		return nil
	}
	return notify(state)
}

// notify sends assignments to NOTIFY_SOCKET. It does nothing if that is not set.
func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// oneLine keeps a status from being read as further assignments.
func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// Watchdog tells the manager's watchdog (WatchdogSec=), at half its interval, that the daemon is
// alive, as long as alive returns true. alive may block: then nothing is sent, and the manager
// restarts the daemon. Without a watchdog nothing happens, and alive is not called. stop ends it,
// and does not wait for alive.
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
