// Package tlsconn is one end of a TLS connection that never waits for its socket: crypto/tls over
// memory. An event loop moves the records between that memory and the socket, and reads and writes
// what is in them.
//
// While the handshake lasts, crypto/tls needs a goroutine of its own, which is waiting whenever the
// loop has the connection. Afterwards everything happens on the loop.
package tlsconn
