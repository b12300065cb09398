package quicid

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"sync"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The bounds of a layout, in bytes. draft-ietf-quic-load-balancers-21, 5.2 and 5.3.
const (
	MaxServer = 15
	MinNonce  = 4
	MaxBlock  = 19 // server ID and nonce; a connection ID has one byte in front of them
	KeySize   = 16

	// Configs is how many configurations there may be at the same time: the first three bits of an ID say which one is its, and
	// the last value says that none is. Section 3.1.
	Configs     = 7
	configShift = 5
	cloudServer = 8
)

// A Layout says where in a connection ID the ID of a server is, and how it is encrypted.
type Layout struct {
	config int // -1: any
	server int
	nonce  int
	block  cipher.Block // nil: it is in the clear
}

// Cloud is the layout that load balancers of clouds want: after the first byte, the 8 bytes of the server's ID in the clear,
// and then whatever the server likes. So is the first byte, also where the draft would say that the ID has no server: of the IDs that
// have none, one in 2^64 is taken for a server's.
var Cloud = &Layout{config: -1, server: cloudServer}

// New returns the layout of a configuration of the draft. The lengths of the server ID and of the nonce are in bytes; key is
// nil, if it has none.
func New(config, server, nonce int, key []byte) (*Layout, error) {
	switch {
	case config < 0 || config >= Configs:
		return nil, fmt.Errorf("configuration %d is not from 0 to %d", config, Configs-1)
	case server < 1 || server > MaxServer:
		return nil, fmt.Errorf("a server ID of %d bytes; it has 1 to %d", server, MaxServer)
	case nonce < MinNonce || server+nonce > MaxBlock:
		return nil, fmt.Errorf("a nonce of %d bytes; it has at least %d, and with the server ID at most %d", nonce, MinNonce, MaxBlock)
	}
	l := &Layout{config: config, server: server, nonce: nonce}
	if len(key) > 0 {
		if len(key) != KeySize {
			return nil, fmt.Errorf("a key of %d bytes; it has %d", len(key), KeySize)
		}
		l.block, _ = aes.NewCipher(key)
	}
	return l, nil
}

// Layouts returns the layouts of a group's connection IDs.
func Layouts(q *spec.QUIC) (all []*Layout) {
	if q.Cloud {
		return []*Layout{Cloud}
	}
	for _, c := range q.IDs {
		if l, err := New(c.Config, c.ServerID, c.Nonce, []byte(c.Key)); err == nil { // check has said so if not
			all = append(all, l)
		}
	}
	return all
}

// String describes the layout for people, without its key.
func (l *Layout) String() string {
	if l.config < 0 {
		return "cloud"
	}
	return fmt.Sprintf("configuration %d", l.config)
}

// Len returns how many bytes of a connection ID Server needs. One of Cloud may be longer.
func (l *Layout) Len() int { return 1 + l.server + l.nonce }

// ServerLen returns the length of server IDs, in bytes.
func (l *Layout) ServerLen() int { return l.server }

// A Server is what Layout.Server returns, so that it need not be allocated.
type Server [MaxServer]byte

// Server returns the ID of the server that has made a connection ID; its length is ServerLen. id begins with the connection ID,
// and may go on. The result is false if the ID has another layout, or id is too short; an ID that somebody has made up may
// well have a server.
func (l *Layout) Server(id []byte) (s Server, ok bool) {
	n := l.server + l.nonce
	if len(id) < l.Len() {
		return s, false
	}
	if l.config >= 0 && int(id[0]>>configShift) != l.config {
		return s, false
	}
	if l.block == nil {
		copy(s[:], id[1:1+l.server])
		return s, true
	}
	h := scratch.Get().(*halves)
	l.decrypt(h, id[1:1+n])
	copy(s[:], h.plain[:l.server])
	scratch.Put(h)
	return s, true
}

// decrypt decrypts b into h.plain; of a nonce that is longer than the server ID, the end is wrong.
//
// If it is no block of AES, it is a Feistel network of four rounds over the two halves of what follows the first byte. The byte in the middle, if
// there is one, belongs to both: its upper four bits to the left half. Section 5.4.2.
func (l *Layout) decrypt(h *halves, b []byte) {
	if len(b) == aes.BlockSize {
		l.block.Decrypt(h.plain[:aes.BlockSize], b)
		return
	}
	h.split(b)
	h.round(l.block, &h.left, &h.right, 4)
	h.round(l.block, &h.right, &h.left, 3)
	h.round(l.block, &h.left, &h.right, 2)
	if l.server > l.nonce { // its end is in the right half
		h.round(l.block, &h.right, &h.left, 1)
	}
	h.join()
}

// encrypt is the inverse of decrypt.
func (l *Layout) encrypt(h *halves, b []byte) {
	if len(b) == aes.BlockSize {
		l.block.Encrypt(h.plain[:aes.BlockSize], b)
		return
	}
	h.split(b)
	h.round(l.block, &h.right, &h.left, 1)
	h.round(l.block, &h.left, &h.right, 2)
	h.round(l.block, &h.right, &h.left, 3)
	h.round(l.block, &h.left, &h.right, 4)
	h.join()
}

// Append appends a connection ID that a server with this layout would make, as tests and tools do. The server and the nonce
// must have the layout's lengths; of Cloud the nonce may have any. self says that the first byte has the length of the rest.
func (l *Layout) Append(to, server, nonce []byte, self bool) []byte {
	first := byte(max(l.config, 0)) << configShift
	if self {
		first |= byte(len(server) + len(nonce))
	}
	plain := append(append(make([]byte, 0, MaxBlock), server...), nonce...)
	to = append(to, first)
	if l.block == nil {
		return append(to, plain...)
	}
	h := new(halves)
	l.encrypt(h, plain)
	return append(to, h.plain[:len(plain)]...)
}

// halves are the two halves of n bytes, each rounded up.
type halves struct {
	n           int
	left, right [aes.BlockSize]byte
	block       [aes.BlockSize]byte // what is encrypted
	plain       [MaxBlock]byte      // or what became of it
}

// scratch are halves that nobody uses: what is passed to a cipher is on the heap.
var scratch = sync.Pool{New: func() any { return new(halves) }}

func (h *halves) len() int { return (h.n + 1) / 2 }

func (h *halves) split(b []byte) {
	h.n = len(b)
	copy(h.left[:], b[:h.len()])
	copy(h.right[:], b[h.n/2:])
	h.trim()
}

// trim clears what belongs to the other half.
func (h *halves) trim() {
	if h.n%2 == 1 {
		h.left[h.len()-1] &= 0xf0
		h.right[0] &= 0x0f
	}
}

// round changes one half by the other one.
func (h *halves) round(key cipher.Block, half, by *[aes.BlockSize]byte, pass byte) {
	h.block = [aes.BlockSize]byte{14: byte(h.n), 15: pass}
	copy(h.block[:], by[:h.len()])
	key.Encrypt(h.block[:], h.block[:])
	for i := range h.len() {
		half[i] ^= h.block[i]
	}
	h.trim()
}

// join writes the halves into plain.
func (h *halves) join() {
	copy(h.plain[:], h.left[:h.len()])
	if h.n%2 == 1 {
		h.plain[h.n/2] |= h.right[0]
		copy(h.plain[h.len():], h.right[1:h.len()])
		return
	}
	copy(h.plain[h.len():], h.right[:h.len()])
}
