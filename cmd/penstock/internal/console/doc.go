// Package console has the commands that ask a running daemon: status, flows,
// kill, drain, top and the like. They speak the admin API, and know the daemon
// by its answers only.
//
// [Commands] is their grammar for kong; each command is a [Command]. What they
// print for people may change from release to release; what --json prints are
// the types of package api.
//
// Text of the daemon may come from its clients, such as the name in a
// ClientHello. It gets to a terminal through clean only.
package console
