package dgram

// Config says what a [Conn] does beyond moving datagrams. The zero value is a
// good start: GSO and GRO where the kernel has them, and no metadata, since
// each kind costs a little with every datagram.
type Config struct {
	// NoGSO sends every datagram by itself. A segment size that the socket was
	// given before is taken off it.
	NoGSO bool

	// NoGRO receives every datagram by itself, so that buffers may be short and
	// the socket may be read in other ways too. It is switched off where it is on;
	// what has arrived before that stays as it is.
	NoGRO bool

	// ECN asks for Message.ECN on what is received.
	ECN bool

	// Local asks for Message.Local and Message.Interface on what is received:
	// a server on a wildcard address needs them to answer from the address that
	// its client wrote to.
	Local bool

	// Time asks for Message.Time on what is received. The kernel begins to stamp a
	// moment later; what arrives before that is stamped when it is read.
	Time bool

	// Errors keeps ICMP errors for ReadErrors. An unconnected socket then also
	// reports each of them once, as the error of some read or write.
	Errors bool

	// Pace lets Message.Time delay what is sent: SO_TXTIME on the monotonic
	// clock. It needs the fq queueing discipline on the device, without which
	// times are ignored; a batch is planned into runs of equal time only.
	Pace bool
}

// Mode is what a [Conn] got of what it asked for.
type Mode struct {
	Batch  bool // recvmmsg and sendmmsg: many messages a system call
	GSO    bool // runs are sent whole; one route may still refuse
	GRO    bool // super-packets arrive: buffers must hold MaxSize bytes
	ECN    bool // Message.ECN, both ways
	Local  bool // Message.Local and Message.Interface are set on what is received
	Time   bool // Message.Time is set on what is received
	Errors bool // ReadErrors has something to say
	Pace   bool // Message.Time delays what is sent
	Drops  bool // Stats.Drops counts
}
