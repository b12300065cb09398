package clienthello

// fragments reads the next n bytes of a handshake message, which may be divided into records
// anywhere. It is a value: a copy reads the same bytes again. After the first error, reads
// return zero values.
type fragments struct {
	b    []byte // received and not read
	left int    // bytes of b's first record that are not read
	n    int
	err  error
}

// run returns the next bytes of one record, at least one and at most limit.
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
// byte of the version has no meaning (RFC 8446, 5.1).
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

// read fills p and returns it.
func (r *fragments) read(p []byte) []byte {
	for rest := p; len(rest) > 0 && r.err == nil; {
		rest = rest[copy(rest, r.run(len(rest))):]
	}
	return p
}

// number reads a big-endian number of the given number of bytes.
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

// vector reads a length of the given number of bytes and skips as many bytes, for which it
// returns a reader.
func (r *fragments) vector(bytes int) fragments {
	n := r.number(bytes)
	inner := *r
	inner.n = n
	r.skip(n)
	return inner
}
