// Package systemd talks to the service manager: it takes over sockets that the manager has
// bound (sd_listen_fds(3)) and reports the daemon's state (sd_notify(3)). Without a manager
// it does nothing.
package systemd
