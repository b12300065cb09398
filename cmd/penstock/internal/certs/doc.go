// Package certs is the server's side of certificates: it reads what a listener's tls names, checks it, chooses by server name, and reads it
// again when it changes. It knows nothing of flows: [Server.Config] gives what crypto/tls needs for a handshake, and [IdentityOf] who the
// client is after it.
//
// Everything that is wrong is a [Problem] with its file, and the line of the PEM block. Problems that keep a certificate from being used are
// errors; what a client will mind, such as a certificate that has expired, is a warning: the relay must be able to start.
//
// A certificate and its key are two files, which are replaced one after the other. So each pair is read as one: while it does not match, or
// cannot be read, the pair before it stays in use.
//
// For the members' side, [Clients] has the settings of handshakes with members, from the files that groups and checks name, and [Explain]
// says in words for operators why a handshake with a member failed.
package certs
