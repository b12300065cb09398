// Package systemd is how the daemon and the service manager talk: sockets that
// the manager has bound (sd_listen_fds(3)), and what the daemon tells about
// itself (sd_notify(3)). Without a manager all of it does nothing.
package systemd
