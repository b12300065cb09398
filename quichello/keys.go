package quichello

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// keys open the Initial packets of a client. RFC 9001, 5.
type keys struct {
	aead   cipher.AEAD
	iv     [12]byte
	header cipher.Block // protects the header
}

// What keys are made from. RFC 9001, 5.2 and RFC 9369, 3.3.
var (
	salt1 = []byte("\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a")
	salt2 = []byte("\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9")
)

// newKeys returns the keys of a client whose first packet has a destination connection ID.
func newKeys(version uint32, id []byte) (k keys, err error) {
	salt, name := salt1, "quic "
	if version == Version2 {
		salt, name = salt2, "quicv2 "
	}
	initial, err := hkdf.Extract(sha256.New, id, salt)
	if err != nil {
		return k, err
	}
	client, err := expand(initial, "client in", sha256.Size)
	if err != nil {
		return k, err
	}
	key, err := expand(client, name+"key", 16)
	if err != nil {
		return k, err
	}
	iv, err := expand(client, name+"iv", len(k.iv))
	if err != nil {
		return k, err
	}
	copy(k.iv[:], iv)
	hp, err := expand(client, name+"hp", 16)
	if err != nil {
		return k, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return k, err
	}
	if k.aead, err = cipher.NewGCM(block); err != nil {
		return k, err
	}
	k.header, err = aes.NewCipher(hp)
	return k, err
}

// expand is HKDF-Expand-Label with an empty context. RFC 8446, 7.1.
func expand(secret []byte, label string, n int) ([]byte, error) {
	const prefix = "tls13 "
	info := make([]byte, 0, 32)
	info = binary.BigEndian.AppendUint16(info, uint16(n))
	info = append(info, byte(len(prefix)+len(label)))
	info = append(append(info, prefix...), label...)
	return hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
}

// open decrypts a packet whose packet number begins at b[at:], and returns its frames, which are new memory. largest
// is the largest packet number so far, or -1. It does not change b.
func (k *keys) open(b []byte, at int, largest int64) (frames []byte, number int64, ok bool) {
	const sample = 16 // RFC 9001, 5.4.2
	if len(b) < at+4+sample {
		return nil, 0, false
	}
	var mask [aes.BlockSize]byte
	k.header.Encrypt(mask[:], b[at+4:at+4+sample])
	n := int((b[0]^mask[0])&3) + 1
	header := make([]byte, at+n, at+n+len(b))
	copy(header, b)
	header[0] ^= mask[0] & 0x0f
	truncated := int64(0)
	for i := range n {
		header[at+i] ^= mask[1+i]
		truncated = truncated<<8 | int64(header[at+i])
	}
	number = fullNumber(largest, truncated, 8*n)
	nonce := k.iv
	for i := range 8 {
		nonce[4+i] ^= byte(number >> (56 - 8*i))
	}
	frames, err := k.aead.Open(header[at+n:], nonce[:], b[at+n:], header)
	return frames, number, err == nil
}

// fullNumber returns the packet number of which the last bits were sent, and that is nearest to the one
// that is expected. RFC 9000, A.3.
func fullNumber(largest, truncated int64, bits int) int64 {
	expected, window := largest+1, int64(1)<<bits
	candidate := expected&^(window-1) | truncated
	switch {
	case candidate <= expected-window/2 && candidate < 1<<62-window:
		return candidate + window
	case candidate > expected+window/2 && candidate >= window:
		return candidate - window
	}
	return candidate
}
