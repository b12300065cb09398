package simkernel

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"

	"github.com/penstock/penstock/internal/sys"
)

// Records are the record layer of TLS 1.3 (RFC 8446, 5) of a socket with kTLS, with AES-GCM.
type Records struct {
	out, in direction
	kind    uint8     // of what was opened last
	plain   []byte    // the rest of it
	opened  bool      // there is such a record, which may be empty
	failed  sys.Errno // what was received is no record, or not one of these keys: nothing is read from then on
}

type direction struct {
	aead cipher.AEAD
	iv   [12]byte
	next uint64
}

// recordMost is what is in a record at the most, and recordMore by how much a record is longer.
const (
	recordMost = 16 << 10
	recordMore = 5 + 1 + 16
)

// NewRecords returns the record layer with these keys; nil: they are not of AES-GCM.
func NewRecords(out, in *sys.TLSKeys) *Records {
	r := &Records{}
	for _, x := range [...]struct {
		d *direction
		k *sys.TLSKeys
	}{{&r.out, out}, {&r.in, in}} {
		block, err := aes.NewCipher(x.k.Key)
		if err != nil || x.k.Suite != 0x1301 && x.k.Suite != 0x1302 {
			return nil
		}
		if x.d.aead, err = cipher.NewGCM(block); err != nil {
			return nil
		}
		x.d.iv, x.d.next = x.k.IV, x.k.Next
	}
	return r
}

func (d *direction) nonce() []byte {
	n := d.iv
	binary.BigEndian.PutUint64(n[4:], binary.BigEndian.Uint64(n[4:])^d.next)
	d.next++
	return n[:]
}

// Seal returns a record with p, of which it takes recordMost bytes at the most.
func (r *Records) Seal(kind uint8, p []byte) (record []byte, n int) {
	n = min(len(p), recordMost)
	size := n + 1 + 16
	head := []byte{sys.RecordData, 3, 3, byte(size >> 8), byte(size)}
	inner := append(append(make([]byte, 0, n+1), p[:n]...), kind)
	return r.out.aead.Seal(head, r.out.nonce(), inner, head), n
}

// Fits returns how much can be in a record that is n bytes long.
func (r *Records) Fits(n int) int { return min(n-recordMore, recordMost) }

// Open opens the record that b begins with, if nothing is left of the last one, and returns its length; 0: b does not have all of it, the last one
// is not read, or it is none.
func (r *Records) Open(b []byte) int {
	if r.opened || r.failed != 0 || len(b) < 5 {
		return 0
	}
	size := 5 + int(binary.BigEndian.Uint16(b[3:]))
	switch { // tls_rx_msg_size
	case size > 5+recordMost+1+16:
		r.failed = sys.EMSGSIZE
		return 0
	case size < recordMore:
		r.failed = sys.EBADMSG
		return 0
	case b[1] != 3 || b[2] != 3:
		r.failed = sys.EINVAL
		return 0
	case len(b) < size:
		return 0
	}
	plain, err := r.in.aead.Open(nil, r.in.nonce(), b[5:size], b[:5])
	for len(plain) > 0 && plain[len(plain)-1] == 0 {
		plain = plain[:len(plain)-1]
	}
	if err != nil || len(plain) == 0 {
		r.failed = sys.EBADMSG
		return 0
	}
	r.kind, r.plain, r.opened = plain[len(plain)-1], plain[:len(plain)-1], true
	return size
}

// Ready reports whether there is something to read, or an error.
func (r *Records) Ready() bool { return r.opened || r.failed != 0 }

// Read reads the opened record: of data only unless any is set, and so that it is read again if peek is. EAGAIN says that there is none.
func (r *Records) Read(p []byte, any, peek bool) (n int, kind uint8, e sys.Errno) {
	switch {
	case r.failed != 0:
		return 0, 0, r.failed
	case !r.opened:
		return 0, 0, sys.EAGAIN
	case !any && r.kind != sys.RecordData:
		return 0, 0, sys.EIO
	}
	n = copy(p, r.plain)
	if !peek {
		if r.plain = r.plain[n:]; len(r.plain) == 0 {
			r.opened = false
		}
	}
	return n, r.kind, 0
}
