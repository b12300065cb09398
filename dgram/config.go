package dgram

// Config configures a [Conn]. The zero value uses GSO and GRO where the kernel supports
// them, and no metadata, which costs a little for each datagram.
type Config struct {
	// NoGSO sends each datagram separately. It resets a segment size that was set on the
	// socket before.
	NoGSO bool

	// NoGRO receives each datagram separately, so that buffers may be shorter than
	// MaxSize and the socket may be read in other ways. Super-packets that have already
	// arrived are still received as they are.
	NoGRO bool

	// ECN sets Message.ECN on received messages.
	ECN bool

	// Local sets Message.Local and Message.Interface on received messages. A server that
	// listens on a wildcard address needs them to reply from the address that its client
	// wrote to.
	Local bool

	// Time sets Message.Time on received messages. The kernel begins to stamp datagrams
	// a moment after New; those that arrive earlier are stamped when they are read.
	Time bool

	// Errors makes ICMP errors available to ReadErrors. On an unconnected socket a read
	// or write then also returns each of them once.
	Errors bool

	// Pace sends messages at their Message.Time, with SO_TXTIME on the monotonic clock.
	// The device needs the fq queueing discipline; others ignore the time. A run has
	// messages of equal time only.
	Pace bool
}

// Mode is what the system supports of a [Config].
type Mode struct {
	Batch  bool // one system call moves many messages (recvmmsg, sendmmsg)
	GSO    bool // runs are sent as one message; a route may still refuse them
	GRO    bool // super-packets are received: buffers must have MaxSize bytes
	ECN    bool // Message.ECN is set on received messages
	Local  bool // Message.Local and Message.Interface are set on received messages
	Time   bool // Message.Time is set on received messages
	Errors bool // ReadErrors is supported
	Pace   bool // Message.Time delays messages
	Lost   bool // Stats.Lost is counted
}
