// Package fleet has what relays that are operated together keep in etcd, below one key: reports, orders and their
// answers, a log of who did what, and the results of health checks that they share. It is the logic over a client of
// etcd, for relays (Presence, Checks) and for operators (Operator), and knows nothing of the daemon.
//
// A write that gets no answer may be done later. Nothing is said of it before that is settled: see Operator.settle.
package fleet
