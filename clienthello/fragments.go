package clienthello

// fragments reads the next n bytes of a handshake message, wherever the records
// end that it is in. It is a value: a copy reads the same bytes again. The first
// error stays, and what is read after it is zero.
type fragments struct {
	b    []byte // received, from the place of the reader on
	left int    // bytes of b's first record that are not read
	n    int
	err  error
}

// run gives the next bytes that are together, at most limit, at least one.
func (r *fragments) run(limit int) []byte {
	if r.err == nil && limit > r.n {
		r.err = errLength
	}
	if r.err == nil && r.left == 0 {
		r.record()
	}
	if r.err == nil && len(r.b) == 0 {
		r.err = ErrIncomplete
	}
	if r.err != nil {
		return nil
	}
	got := r.b[:min(limit, r.left, len(r.b))]
	r.b, r.left, r.n = r.b[len(got):], r.left-len(got), r.n-len(got)
	return got
}

// record reads the header of a record: type 1, version 2, length 2. The second
// half of the version says nothing (RFC 8446, 5.1).
func (r *fragments) record() {
	if len(r.b) < 5 {
		r.err = ErrIncomplete
		return
	}
	r.left = int(r.b[3])<<8 | int(r.b[4])
	if r.b[0] != recordHandshake || r.b[1] != majorVersion || r.left == 0 || r.left > recordMax {
		r.err = errRecord
	}
	r.b = r.b[5:]
}

func (r *fragments) skip(n int) {
	for n > 0 && r.err == nil {
		n -= len(r.run(n))
	}
}

// read fills p, and gives it.
func (r *fragments) read(p []byte) []byte {
	for rest := p; len(rest) > 0 && r.err == nil; {
		rest = rest[copy(rest, r.run(len(rest))):]
	}
	return p
}

// number reads a big-endian number of so many bytes.
func (r *fragments) number(bytes int) (v int) {
	for range bytes {
		for _, c := range r.run(1) {
			v = v<<8 | int(c)
		}
	}
	if r.err != nil {
		return 0
	}
	return v
}

// vector reads a length of so many bytes, and goes past what follows: that is for
// the reader that it gives.
func (r *fragments) vector(bytes int) fragments {
	n := r.number(bytes)
	inner := *r
	inner.n = n
	r.skip(n)
	return inner
}
