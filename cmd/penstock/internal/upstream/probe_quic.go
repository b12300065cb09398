package upstream

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/penstock/penstock/quichello"
)

// What a check of QUIC sends and reads.
const (
	quicMinimum  = 1200 // servers do not answer shorter datagrams that begin a connection: RFC 9000, 14.1
	quicOwnID    = 8    // bytes of a connection ID; a server may ignore shorter ones: RFC 9000, 7.2
	quicStrange  = 64   // datagrams that are not the answer, before a check gives up
	quicMaxShown = 4    // versions in an error
)

// Bytes of packets of all versions. RFC 8999, 5.1.
const (
	quicLong  = 0x80
	quicFixed = 0x40 // 1 in all versions that are in use: RFC 9000, 17.2
)

// A quicQuestion is a packet of a version that nobody speaks, with the connection IDs that its answer must have. A server answers it with the
// versions that it speaks (Version Negotiation, RFC 9000, 6.1), and keeps nothing for it.
type quicQuestion struct {
	packet    [quicMinimum]byte
	dest, src []byte // in packet
}

// newQUICQuestion makes up the connection IDs and the version: one of those that are reserved so that servers do not know them (RFC 9000, 6.3
// and 15).
func newQUICQuestion() *quicQuestion {
	q := &quicQuestion{}
	b := append(q.packet[:0], quicLong|quicFixed)
	var random [4 + 2*quicOwnID]byte
	rand.Read(random[:])
	b = binary.BigEndian.AppendUint32(b, binary.BigEndian.Uint32(random[:])&0xf0f0f0f0|0x0a0a0a0a)
	b = append(append(b, quicOwnID), random[4:4+quicOwnID]...)
	q.dest = b[len(b)-quicOwnID:]
	b = append(append(b, quicOwnID), random[4+quicOwnID:]...)
	q.src = b[len(b)-quicOwnID:]
	return q
}

// versions returns the versions of the answer to the question; ok: the datagram is that. Whoever has not seen the question cannot know its
// connection IDs.
func (q *quicQuestion) versions(datagram []byte) (list []uint32, ok bool) {
	h, err := quichello.ParseHeader(datagram)
	if err != nil || h.Kind != quichello.VersionNegotiation || !bytes.Equal(h.DestID, q.src) || !bytes.Equal(h.SrcID, q.dest) {
		return nil, false
	}
	b := datagram[1+4+1+len(h.DestID)+1+len(h.SrcID):]
	if len(b) == 0 || len(b)%4 != 0 { // RFC 9000, 17.2.1
		return nil, false
	}
	for ; len(b) > 0; b = b[4:] {
		list = append(list, binary.BigEndian.Uint32(b))
	}
	return list, true
}

// quicCheck asks for the versions of QUIC. A datagram that is not the answer is not the member's word: the answer may come behind it.
func quicCheck(conn net.Conn) error {
	q := newQUICQuestion()
	if _, err := conn.Write(q.packet[:]); err != nil {
		return err
	}
	var strange []byte
	b := make([]byte, 2*quicMinimum)
	for range quicStrange {
		n, err := conn.Read(b)
		switch {
		case err != nil && strange != nil:
			return fmt.Errorf("the answer is %.40q, which is not Version Negotiation of QUIC", strange)
		case isTimeout(err):
			return fmt.Errorf("no answer (%w); expected: Version Negotiation of QUIC, which not every server sends (docs/quic.md)", err)
		case err != nil:
			return err
		}
		if list, ok := q.versions(b[:n]); ok {
			return knownVersion(list)
		}
		strange = bytes.Clone(b[:n])
	}
	return fmt.Errorf("the answers are %.40q and the like, which are not Version Negotiation of QUIC", strange)
}

// knownVersion returns an error if neither version 1 nor 2 is in a list.
func knownVersion(versions []uint32) error {
	var shown []string
	for _, v := range versions {
		switch {
		case v == quichello.Version1, v == quichello.Version2:
			return nil
		case v&0x0f0f0f0f == 0x0a0a0a0a: // nobody's: RFC 9000, 15
		case len(shown) < quicMaxShown:
			shown = append(shown, fmt.Sprintf("%#08x", v))
		}
	}
	if len(shown) == 0 {
		return errors.New("the member speaks QUIC, but names no version that is in use; expected: 1 or 2")
	}
	return fmt.Errorf("the member speaks version %s of QUIC; expected: 1 or 2", strings.Join(shown, ", "))
}
