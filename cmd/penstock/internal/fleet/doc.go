// Package fleet has what relays that are operated together keep in etcd, below one key: reports, orders and their
// answers, locks, a log of who did what, and the results of health checks that they share. It is the logic over a
// client of etcd, for relays (Presence, Checks) and for operators (Operator, Lock), and knows nothing of the daemon.
package fleet
