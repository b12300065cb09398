package segment

// Run is a GSO run that grows by one message at a time. The zero Run is empty and takes whatever
// comes first.
//
//	var r segment.Run
//	for r.Join(limit, len(next), nextSegment) { … }
//
// A Run is a value: to undo changes, keep a copy.
type Run struct {
	Size  int // bytes of each datagram except for the last
	Count int // datagrams
	Bytes int // payload of all of them

	closed bool // the last datagram is shorter than Size, or must be alone
}

// Join appends a message of n bytes, which is cut every segment bytes (0 or less: it is one
// datagram), and reports whether the run took it. A run that refuses a message is unchanged and has
// to leave before it.
//
// The first message is always taken, even if it is beyond the limit by itself: the kernel refuses
// what does not fit into a datagram. [Limit.Fit] returns how much of a long message is safe. An
// empty datagram is always alone, since a run cannot express it.
func (r *Run) Join(l Limit, n, segment int) bool {
	size, count := n, 1
	if segment > 0 && n > segment {
		size, count = segment, (n+segment-1)/segment
	}
	if r.Count == 0 {
		*r = Run{Size: size, Count: count, Bytes: n, closed: n == 0 || n != size*count}
		return true
	}
	if r.closed || n == 0 || r.Count+count > l.Count || r.Bytes+n > l.Bytes {
		return false
	}
	if size != r.Size && (count > 1 || size > r.Size) {
		return false
	}
	r.closed = n != r.Size*count
	r.Count += count
	r.Bytes += n
	return true
}

// Segmented reports whether the run needs UDP_SEGMENT. It must not be attached
// to a single datagram: some paths then lose it (PPPoE among them).
func (r *Run) Segmented() bool { return r.Count > 1 }

// Fit returns how many of n bytes may be sent as one run when they are cut every segment bytes: all
// of them, or a multiple of segment. It is never less than one datagram.
func (l Limit) Fit(n, segment int) int {
	if segment <= 0 || n <= segment || n <= l.Bytes && (n+segment-1)/segment <= l.Count {
		return n
	}
	return segment * max(1, min(l.Count, l.Bytes/segment))
}
