// Package clienthello reads the first message of a TLS client, the ClientHello:
// the name of the server that the client wants (SNI), the protocols that it
// offers (ALPN) and the TLS versions. With these a relay can choose an upstream
// without ending TLS.
//
// [Parse] is a pure function over the bytes that have come so far, for an event
// loop such as relay's Hooks.Sniff. [Peek] reads from a connection that blocks,
// and returns one that still has all bytes, for instance for splice.Relay.
//
// What is read comes from strangers and is not authenticated. It is bounded by
// [MaxSize]; names that are not DNS names are refused.
//
// The package uses the standard library only and runs everywhere.
package clienthello
