package dgram

import "sync/atomic"

// Stats are the counters of a [Conn] since New.
type Stats struct {
	// What was received, and the system calls for it, including those that found
	// nothing. A message may hold several datagrams.
	ReadCalls, ReadMessages, ReadDatagrams, ReadBytes int64

	// Truncated counts received messages that were longer than their buffer.
	Truncated int64

	// What was sent, and the system calls for it. A message may hold several datagrams.
	WriteCalls, WriteMessages, WriteDatagrams, WriteBytes int64

	// Runs counts GSO runs that were sent.
	Runs int64

	// Fallbacks counts runs that a route refused, and that were sent again as single
	// datagrams.
	Fallbacks int64

	// Lost counts datagrams that the kernel dropped at this socket because its buffer
	// was full or a checksum was wrong (SO_RXQ_OVFL and SO_MEMINFO).
	Lost int64

	// ErrorsDropped counts ICMP errors that were dropped because ReadErrors was not
	// called in time.
	ErrorsDropped int64
}

// counters holds the values of Stats.
type counters struct {
	readCalls, readMessages, readDatagrams, readBytes     atomic.Int64
	truncated                                             atomic.Int64
	writeCalls, writeMessages, writeDatagrams, writeBytes atomic.Int64
	runs, fallbacks                                       atomic.Int64
	drops                                                 drops
	errorsLost                                            atomic.Int64
}

func (c *counters) stats() Stats {
	return Stats{
		ReadCalls:      c.readCalls.Load(),
		ReadMessages:   c.readMessages.Load(),
		ReadDatagrams:  c.readDatagrams.Load(),
		ReadBytes:      c.readBytes.Load(),
		Truncated:      c.truncated.Load(),
		WriteCalls:     c.writeCalls.Load(),
		WriteMessages:  c.writeMessages.Load(),
		WriteDatagrams: c.writeDatagrams.Load(),
		WriteBytes:     c.writeBytes.Load(),
		Runs:           c.runs.Load(),
		Fallbacks:      c.fallbacks.Load(),
		Lost:           c.drops.total.Load(),
		ErrorsDropped:  c.errorsLost.Load(),
	}
}

// drops extends the kernel's 32-bit counter, which wraps, to 64 bits.
type drops struct{ total atomic.Int64 }

// observe adds a reading of the kernel's counter. Readings may arrive out of order; one
// that is behind the total changes nothing.
func (d *drops) observe(reading uint32) {
	for {
		old := d.total.Load()
		more := int32(reading - uint32(old))
		if more <= 0 || d.total.CompareAndSwap(old, old+int64(more)) {
			return
		}
	}
}
