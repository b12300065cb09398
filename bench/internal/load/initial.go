//go:build linux

package load

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Initial packets of QUIC, RFC 9000, 17.2.2, and RFC 9001, 5.

// InitialSize is the least that a client's first datagram may have: RFC 9000, 14.1.
const InitialSize = 1200

// Initials returns n datagrams with an Initial packet, each of a connection of its own, with a ClientHello for the name a.test. half says that they have
// the first half of it, and that their clients never go on: a relay that wants the name has to decrypt each, and to keep it while it waits.
func Initials(r *rand.Rand, n int, half bool) ([][]byte, error) {
	hello, err := clientHello()
	if err != nil {
		return nil, err
	}
	if half {
		hello = hello[:len(hello)/2]
	}
	all := make([][]byte, n)
	for i := range all {
		id := binary.BigEndian.AppendUint64(nil, r.Uint64())
		if all[i], err = initial(id, hello); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// clientHello is what Go's client says first.
func clientHello() ([]byte, error) {
	c := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{ServerName: "a.test", NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}}}) // it fits into one packet
	defer c.Close()
	c.SetTransportParameters([]byte{0x01, 0x02, 0x67, 0x10})
	if err := c.Start(context.Background()); err != nil {
		return nil, err
	}
	for {
		switch e := c.NextEvent(); e.Kind {
		case tls.QUICWriteData:
			return slices.Clone(e.Data), nil
		case tls.QUICNoEvent:
			return nil, fmt.Errorf("the client has nothing to say")
		}
	}
}

// initial is a datagram with one Initial packet of version 1, which has a connection ID and the beginning of the CRYPTO stream.
func initial(id, hello []byte) ([]byte, error) {
	expand := func(secret []byte, label string, n int) []byte { // RFC 8446, 7.1
		label = "tls13 " + label
		info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(len(label)))
		b, err := hkdf.Expand(sha256.New, secret, string(append(info, label...))+"\x00", n)
		if err != nil {
			panic(err) // too long
		}
		return b
	}
	secret, err := hkdf.Extract(sha256.New, id, []byte("\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a"))
	if err != nil {
		return nil, err
	}
	client := expand(secret, "client in", 32)
	block, err := aes.NewCipher(expand(client, "quic key", 16))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	mask, err := aes.NewCipher(expand(client, "quic hp", 16))
	if err != nil {
		return nil, err
	}
	short := func(b []byte, n int) []byte { return binary.BigEndian.AppendUint16(b, uint16(n)|1<<14) } // a number of variable length, in two bytes
	b := append([]byte{0xc0, 0, 0, 0, 1, byte(len(id))}, id...)                                        // long header, one byte of packet number
	b = append(b, 0, 0)                                                                                // no ID of the client, no token
	b = short(b, InitialSize-len(b)-2)
	at := len(b)
	b = append(b, 0) // the packet's number
	frames := append(short([]byte{6, 0}, len(hello)), hello...)
	frames = append(frames, make([]byte, InitialSize-len(b)-aead.Overhead()-len(frames))...) // PADDING
	b = aead.Seal(b, expand(client, "quic iv", aead.NonceSize()), frames, b)
	var m [aes.BlockSize]byte
	mask.Encrypt(m[:], b[at+4:])
	b[0] ^= m[0] & 0x0f
	b[at] ^= m[1]
	return b, nil
}
