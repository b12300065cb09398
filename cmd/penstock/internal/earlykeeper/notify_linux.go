package earlykeeper

import (
	"net"
	"os"
)

// notifier returns a function that sends states to the service manager (sd_notify(3)); nil: there is no
// manager that wants them.
func notifier() func(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	return func(state string) {
		c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			return // nobody listens: a manager that is gone needs no state
		}
		defer c.Close()
		c.Write([]byte(state))
	}
}
