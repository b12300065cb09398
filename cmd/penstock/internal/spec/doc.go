// Package spec has the types that the daemon's packages share: a configuration as
// plain values, and the reasons that the daemon gives. It imports no other package of the
// daemon.
//
// A [Config] is a complete configuration with every default filled in. It is
// immutable: a reload makes another one. Endpoints are URLs:
//
//	tcp://HOST:PORT   TCP; HOST is a name, an IPv4 address or an IPv6 address in brackets
//	udp://HOST:PORT   UDP, written the same way
//	tcp://HOST:A-B    the ports from A to B, and udp://HOST:A-B in the same way
//	unix:///PATH      a Unix stream socket with an absolute path, taken as it is written
//	unix:@NAME        a Unix stream socket in the abstract namespace
//	unixgram:///PATH  a Unix datagram socket, and unixgram:@NAME an abstract one
//	echo:             an upstream that sends back what it gets
//	discard:          an upstream that drops what it gets
//
// Parsing does no lookups: a host stays a name until package upstream or app looks it
// up.
package spec
