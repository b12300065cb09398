// Package spec is the vocabulary of the daemon: what an operator asks for, as
// plain values, and the words for what the daemon says back. Every station of
// the daemon speaks it and no station owns it; it imports nothing of the daemon
// and does nothing.
//
// A [Config] is one whole configuration with every default filled in. It is
// immutable once made: a reload makes another one. Endpoints are URLs:
//
//	tcp://HOST:PORT   TCP; HOST is a name, an IPv4 address or an IPv6 address in brackets
//	udp://HOST:PORT   UDP, written the same way
//	unix:///PATH      a Unix stream socket with an absolute path, taken as it is written
//	unix:@NAME        a Unix stream socket in the abstract namespace
//	unixgram:///PATH  a Unix datagram socket, and unixgram:@NAME an abstract one
//	echo:             an upstream that sends back what it gets
//	discard:          an upstream that drops what it gets
//
// Parsing asks nobody: a host stays a name until package upstream or app looks it
// up.
package spec
