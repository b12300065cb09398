package quichello

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// packet is an Initial packet that a client sends.
type packet struct {
	version uint32
	dest    []byte
	src     []byte
	token   []byte
	number  int64
	digits  int // bytes of the packet number; 0: 1
	frames  []byte
}

// seal appends the packet to a datagram, with what makes the frames at least size bytes long.
func (p packet) seal(tb testing.TB, datagram []byte, size int) []byte {
	tb.Helper()
	version, digits := p.version, max(p.digits, 1)
	if version == 0 {
		version = Version1
	}
	first := byte(longHeader | fixedBit)
	if version == Version2 {
		first |= 1 << 4
	}
	frames := append([]byte(nil), p.frames...)
	for len(frames) < max(size, 4) {
		frames = append(frames, framePadding)
	}
	b := []byte{first | byte(digits-1)}
	b = binary.BigEndian.AppendUint32(b, version)
	b = append(append(b, byte(len(p.dest))), p.dest...)
	b = append(append(b, byte(len(p.src))), p.src...)
	b = append(number(b, len(p.token)), p.token...)
	b = number(b, digits+len(frames)+16)
	at := len(b)
	for i := digits - 1; i >= 0; i-- {
		b = append(b, byte(p.number>>(8*i)))
	}
	k, err := newKeys(version, p.dest)
	if err != nil {
		tb.Fatal(err)
	}
	nonce := k.iv
	for i := range 8 {
		nonce[4+i] ^= byte(p.number >> (56 - 8*i))
	}
	b = k.aead.Seal(b, nonce[:], frames, b)
	var mask [16]byte
	k.header.Encrypt(mask[:], b[at+4:at+20])
	b[0] ^= mask[0] & 0x0f
	for i := range digits {
		b[at+i] ^= mask[1+i]
	}
	return append(datagram, b...)
}

// number appends a number of variable length, in two bytes or four.
func number(b []byte, n int) []byte {
	if n < 1<<14 {
		return append(b, 0x40|byte(n>>8), byte(n))
	}
	return append(b, 0x80|byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// crypto appends a CRYPTO frame with message[from:to].
func crypto(b, message []byte, from, to int) []byte {
	b = number(append(b, frameCrypto), from)
	return append(number(b, to-from), message[from:to]...)
}

// clientHello is the first message of Go's client. protocols make it long.
func clientHello(tb testing.TB, name string, protocols ...string) []byte {
	tb.Helper()
	c := tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{ServerName: name, NextProtos: protocols, MinVersion: tls.VersionTLS13}})
	defer c.Close()
	c.SetTransportParameters([]byte{0x01, 0x02, 0x67, 0x10})
	if err := c.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	for {
		switch e := c.NextEvent(); e.Kind {
		case tls.QUICWriteData:
			return append([]byte(nil), e.Data...)
		case tls.QUICNoEvent:
			tb.Fatal("the client has nothing to say")
		}
	}
}

var (
	destID = []byte{0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08}
	srcID  = []byte{1, 2, 3, 4}
)

// initial is a datagram with one packet.
func initial(tb testing.TB, number int64, frames []byte) []byte {
	tb.Helper()
	return packet{dest: destID, src: srcID, number: number, frames: frames}.seal(tb, nil, 1200)
}

// vector reads a datagram of an RFC.
func vector(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
