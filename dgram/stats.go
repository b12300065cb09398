package dgram

import "sync/atomic"

// Stats is what a [Conn] has done since New.
type Stats struct {
	// What was received, and the system calls it took. A wait that was answered
	// with nothing counts as a call.
	ReadCalls, ReadMessages, ReadDatagrams, ReadBytes int64

	// Truncated counts received messages that were longer than their buffer.
	Truncated int64

	// What has left, and the system calls it took. A message to WriteBatch may
	// hold several datagrams.
	WriteCalls, WriteMessages, WriteDatagrams, WriteBytes int64

	// Runs counts the GSO runs among what has left.
	Runs int64

	// Fallbacks counts the runs that a route refused, and that were sent again
	// as single datagrams.
	Fallbacks int64

	// Drops is how many datagrams the kernel has dropped at this socket because
	// its buffer was full or a checksum was wrong. SO_RXQ_OVFL and SO_MEMINFO.
	Drops int64

	// ErrorsLost counts ICMP errors that nobody fetched with ReadErrors in time.
	ErrorsLost int64
}

// counters is Stats while it grows.
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
		Drops:          c.drops.total.Load(),
		ErrorsLost:     c.errorsLost.Load(),
	}
}

// drops extends the kernel's counter of 32 bits, which wraps, to 64.
type drops struct{ total atomic.Int64 }

// observe takes a reading. Readings may arrive out of order: one that is
// behind the total changes nothing.
func (d *drops) observe(reading uint32) {
	for {
		old := d.total.Load()
		more := int32(reading - uint32(old))
		if more <= 0 || d.total.CompareAndSwap(old, old+int64(more)) {
			return
		}
	}
}
