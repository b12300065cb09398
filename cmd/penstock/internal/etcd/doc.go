// Package etcd is a small client of etcd v3 on net/http. It speaks the JSON gateway, which every server
// since 3.4 serves on its client URLs below /v3 ("Why gRPC gateway", etcd's documentation).
//
// A Client has several servers and uses one of them until it fails. Follow is what most callers want: the
// state of a prefix and then every change of it, whatever happens to the servers in between.
//
// A Client never goes back in time: an answer with a revision below one that was seen before is refused
// with a StaleError. A cluster that was restored from a backup has such revisions; it is believed after no
// server has said anything else for Config.StaleAfter.
package etcd
