// Package clienthello parses the first message of a TLS client, the ClientHello. It
// contains the name of the server that the client wants (SNI), the application protocols
// that it offers (ALPN) and the TLS versions. With these a relay can choose an upstream
// without terminating TLS.
//
// [Parse] parses the bytes that have arrived so far; it is for event loops, such as a
// Sniff hook of package relay. [Peek] reads from a connection and blocks; it returns a
// connection that still has all bytes, for instance for splice.Relay.
//
// A ClientHello is not authenticated. Its size is limited by [MaxSize], and a server name
// that is not a valid DNS name is an error.
//
// The package imports the standard library only and works on all systems.
package clienthello
