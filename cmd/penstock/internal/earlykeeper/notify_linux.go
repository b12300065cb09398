package earlykeeper

import (
	"net"
	"os"
)

// notifier returns an outlet that sends states to the service manager (sd_notify(3)); nil: there is no
// manager that wants them.
func notifier() *outlet {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	return newOutlet(func(state string) {
		c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			return // nobody listens: a manager that is gone needs no state
		}
		defer c.Close()
		c.Write([]byte(state))
	})
}
