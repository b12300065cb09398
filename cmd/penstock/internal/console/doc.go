// Package console implements the commands that talk to a running daemon: status, flows,
// kill, drain, top and others. They use the admin API only.
//
// [Commands] is their grammar for kong; each command is a [Command]. The text that they
// print may change from release to release. With --json they print the types of package
// api.
//
// Text from the daemon may originate from its clients, such as the name in a ClientHello.
// It must pass through printable before it reaches a terminal.
package console
