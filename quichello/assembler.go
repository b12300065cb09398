package quichello

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock/penstock/clienthello"
)

const (
	// MinDatagram is the minimum size of a client's datagram with an Initial packet, in bytes. RFC 9000, 14.1.
	MinDatagram = 1200
	// MaxDatagrams is how many datagrams an [Assembler] takes: ten times as many as a ClientHello needs that
	// has post-quantum key shares and a session ticket.
	MaxDatagrams = 32
	// maxPieces bounds the CRYPTO frames that are kept, and maxPackets the packets of a datagram that are looked at.
	maxPieces  = 512
	maxPackets = 16
	// minID is the minimum length of the connection ID that a client makes up. RFC 9000, 7.2.
	minID = 8
)

// Errors of [Assembler.Add], for use with [errors.Is].
var (
	// ErrIncomplete is returned while a part of the ClientHello is missing.
	ErrIncomplete = errors.New("incomplete ClientHello of QUIC")
	// ErrNotInitial is returned for a datagram with which no connection of QUIC begins.
	ErrNotInitial = errors.New("no Initial packet of QUIC")
	// ErrVersion is returned for a version of QUIC that is not known here. A server that does not know it
	// either tells the client which ones it knows.
	ErrVersion = errors.New("unknown version of QUIC")
	// ErrOther is returned for a datagram of another connection than the first one, or of none.
	ErrOther = errors.New("a packet of another QUIC connection")
	// ErrMalformed is returned, wrapped in an error with details, for what violates the rules of QUIC.
	ErrMalformed = errors.New("malformed Initial packet")
)

// The details of ErrMalformed.
var (
	errShort   = malformed("its datagram has less than 1200 bytes")
	errID      = malformed("its destination connection ID has less than 8 bytes")
	errHeader  = malformed("a length in the header is wrong")
	errForged  = malformed("it cannot be decrypted")
	errFrame   = malformed("a frame that it must not have, or that is cut off")
	errDiffers = malformed("bytes of the ClientHello came twice, and are not the same")
	errMessage = malformed("its first message is not a ClientHello")
	errSize    = malformed("the ClientHello is longer than 64 KiB")
	errMany    = malformed("the ClientHello comes in too many parts")
)

func malformed(text string) error { return fmt.Errorf("%w: %s", ErrMalformed, text) }

// Assembler puts the ClientHello of one connection together. The zero Assembler is ready for its first
// datagram. It is not safe for concurrent use.
type Assembler struct {
	version   uint32
	id        [MaxID]byte
	idLen     uint8
	begun     bool
	datagrams uint8
	keys      keys
	largest   int64
	pieces    []piece // in order, without overlaps; neighbours need not touch
}

// piece is a part of the stream of CRYPTO frames.
type piece struct {
	off  int
	data []byte
}

func (p *piece) end() int { return p.off + len(p.data) }

// Version returns the connection's version of QUIC; 0 before the first Initial packet.
func (a *Assembler) Version() uint32 { return a.version }

// ID returns the destination connection ID of the client's first packet, which the client has chosen at
// random. The result is valid until the next call of Reset.
func (a *Assembler) ID() []byte { return a.id[:a.idLen] }

// Datagrams returns how many datagrams were added, without those that are of another connection.
func (a *Assembler) Datagrams() int { return int(a.datagrams) }

// Held returns how many bytes of the ClientHello are held.
func (a *Assembler) Held() (n int) {
	for i := range a.pieces {
		n += len(a.pieces[i].data)
	}
	return n
}

// Reset makes the Assembler ready for another connection.
func (a *Assembler) Reset() { *a = Assembler{pieces: slices.Delete(a.pieces, 0, len(a.pieces))} }

// Add takes the next datagram of a client. It returns the ClientHello once all of it has come.
//
// The error is [ErrIncomplete] as long as more is needed, also for a datagram that has only data of the
// kind 0-RTT, which may overtake the Initial packet; [ErrNotInitial] and [ErrVersion] if no connection
// begins with the datagram that can be read here; once one has begun, [ErrOther] if it is of another connection, for
// which the caller should have another Assembler, or of none. Otherwise it wraps [ErrMalformed], or an error of package clienthello,
// and no server would take the datagram either. A datagram for which Add returns an error other than
// ErrIncomplete is not to be forwarded; the client may still complete what came before.
//
// Bytes of the ClientHello that come twice must be the same, because the server might take the others.
//
// Add does not modify the datagram, and keeps no reference to it.
func (a *Assembler) Add(datagram []byte) (clienthello.Hello, error) {
	if a.datagrams == MaxDatagrams {
		return clienthello.Hello{}, errMany
	}
	err := a.packets(datagram)
	if err == ErrOther {
		return clienthello.Hello{}, err // whoever sends such datagrams in the client's name does not use up what it may send
	}
	a.datagrams++
	if err != nil {
		return clienthello.Hello{}, err
	}
	return a.hello()
}

// packets takes the packets of a datagram. RFC 9000, 12.2.
func (a *Assembler) packets(datagram []byte) error {
	h, rest, err := parseHeader(datagram)
	readable := err == nil && (h.Kind == Initial || h.Kind == ZeroRTT)
	switch {
	case a.begun && (!readable || h.Version != a.version || !bytes.Equal(h.DestID, a.ID())):
		return ErrOther
	case err == nil && h.Kind == Unknown:
		return ErrVersion
	case !readable:
		return ErrNotInitial
	}
	version, id := h.Version, h.DestID
	var fresh keys // made once: somebody may send many packets that cannot be decrypted
	var bad error
	initial, opened := false, false
	for b, n := datagram, 0; n < maxPackets; n++ {
		size := 0
		if h.Kind == Initial {
			initial = true
			var frames []byte
			if frames, size, err = a.open(&h, b, rest, len(datagram), &fresh); err == nil {
				if err = a.frames(frames); err != nil {
					return err
				}
				opened = true
			} else if bad == nil {
				bad = err
			}
		} else if _, tail, ok := counted(rest); ok {
			size = len(b) - len(tail)
		}
		if size == 0 || size == len(b) {
			break
		}
		b = b[size:]
		if h, rest, err = parseHeader(b); err != nil || h.Version != version || !bytes.Equal(h.DestID, id) {
			break // no server reads it: padding, or a packet of another connection
		}
	}
	if initial && !opened {
		return bad
	}
	return nil
}

// open opens an Initial packet at the beginning of b; rest is what follows its connection IDs. size is how long it is. fresh
// are the keys of a connection that has not begun, if they were made before.
func (a *Assembler) open(h *Header, b, rest []byte, datagram int, fresh *keys) (frames []byte, size int, err error) {
	if datagram < MinDatagram {
		return nil, 0, errShort
	}
	_, rest, ok := counted(rest) // a token
	if !ok {
		return nil, 0, errHeader
	}
	n, rest, ok := varint(rest)
	if !ok || n > uint64(len(rest)) {
		return nil, 0, errHeader
	}
	at := len(b) - len(rest)
	size = at + int(n)
	k, largest := &a.keys, a.largest
	if !a.begun {
		if len(h.DestID) < minID {
			return nil, size, errID
		}
		if fresh.aead == nil {
			if *fresh, err = newKeys(h.Version, h.DestID); err != nil {
				return nil, size, fmt.Errorf("%w: %w", ErrMalformed, err)
			}
		}
		k, largest = fresh, -1
	}
	frames, number, ok := k.open(b[:size], at, largest)
	if !ok {
		return nil, size, errForged
	}
	if !a.begun {
		a.begun, a.version, a.keys = true, h.Version, *k
		a.idLen = uint8(copy(a.id[:], h.DestID))
	}
	a.largest = max(largest, number)
	return frames, size, nil
}

// The frames that an Initial packet may have. RFC 9000, 12.4.
const (
	framePadding = 0x00
	framePing    = 0x01
	frameACK     = 0x02
	frameACKECN  = 0x03
	frameCrypto  = 0x06
	frameClose   = 0x1c
)

// frames takes the CRYPTO frames of a packet.
func (a *Assembler) frames(b []byte) error {
	for len(b) > 0 {
		kind, rest, ok := varint(b)
		switch {
		case !ok:
			return errFrame
		case kind == framePadding, kind == framePing:
		case kind == frameACK, kind == frameACKECN:
			rest, ok = skipACK(rest, kind == frameACKECN)
		case kind == frameClose:
			rest, ok = skipClose(rest)
		case kind == frameCrypto:
			var off uint64
			var p []byte
			if off, rest, ok = varint(rest); ok {
				p, rest, ok = counted(rest)
			}
			if ok && off+uint64(len(p)) > clienthello.MaxSize {
				return errSize
			}
			if err := a.insert(int(off), p); err != nil {
				return err
			}
		default:
			return errFrame
		}
		if !ok {
			return errFrame
		}
		b = rest
	}
	return nil
}

// skipACK skips what follows the type of an ACK frame. RFC 9000, 19.3.
func skipACK(b []byte, ecn bool) ([]byte, bool) {
	var n uint64
	ok := true
	for i := 0; i < 4 && ok; i++ { // largest, delay, count, first range
		var v uint64
		if v, b, ok = varint(b); i == 2 {
			n = v
		}
	}
	more := 2 * n // a gap and a range
	if ecn {
		more += 3
	}
	if more > uint64(len(b)) {
		return nil, false
	}
	for range more {
		if !ok {
			break
		}
		_, b, ok = varint(b)
	}
	return b, ok
}

// skipClose skips what follows the type of a CONNECTION_CLOSE frame. RFC 9000, 19.19.
func skipClose(b []byte) ([]byte, bool) {
	_, b, ok := varint(b)
	if ok {
		_, b, ok = varint(b)
	}
	if ok {
		_, b, ok = counted(b)
	}
	return b, ok
}

// insert adds a copy of what is new of p, which begins at off, and compares the rest with what came before.
func (a *Assembler) insert(off int, p []byte) error {
	i, _ := slices.BinarySearchFunc(a.pieces, off, func(q piece, off int) int { return q.end() - 1 - off })
	for len(p) > 0 {
		if i == len(a.pieces) || off < a.pieces[i].off { // a gap
			n := len(p)
			if i < len(a.pieces) {
				n = min(n, a.pieces[i].off-off)
			}
			if len(a.pieces) == maxPieces {
				return errMany
			}
			a.pieces = slices.Insert(a.pieces, i, piece{off, bytes.Clone(p[:n])})
			off, p = off+n, p[n:]
			i++
			continue
		}
		q := &a.pieces[i]
		n := min(len(p), q.end()-off)
		if !bytes.Equal(p[:n], q.data[off-q.off:][:n]) {
			return errDiffers
		}
		off, p = off+n, p[n:]
		i++
	}
	return nil
}

// Message returns a copy of the ClientHello as [clienthello.ParseMessage] takes it, or nil if Add has not returned it.
func (a *Assembler) Message() []byte {
	m, _ := a.message()
	return m
}

// hello parses the ClientHello if all of it is there.
func (a *Assembler) hello() (clienthello.Hello, error) {
	m, err := a.message()
	if err != nil {
		return clienthello.Hello{}, err
	}
	return clienthello.ParseMessage(m)
}

// message returns the ClientHello if all of it is there.
func (a *Assembler) message() ([]byte, error) {
	have := 0
	for i := range a.pieces {
		if a.pieces[i].off != have {
			break
		}
		have = a.pieces[i].end()
	}
	const header = 4 // type 1, length 3
	if have < header {
		if have > 0 && a.pieces[0].data[0] != 1 {
			return nil, errMessage
		}
		return nil, ErrIncomplete
	}
	var first [header]byte
	a.read(first[:])
	size := header + int(first[1])<<16 + int(first[2])<<8 + int(first[3])
	switch {
	case first[0] != 1:
		return nil, errMessage
	case size > clienthello.MaxSize:
		return nil, errSize
	case have < size:
		return nil, ErrIncomplete
	}
	message := make([]byte, size)
	a.read(message)
	return message, nil
}

// read copies the beginning of the stream, which is there.
func (a *Assembler) read(b []byte) {
	for i := range a.pieces {
		if b = b[copy(b, a.pieces[i].data):]; len(b) == 0 {
			return
		}
	}
}
