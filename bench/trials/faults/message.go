//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// maxMessage is the length of the longest message, without its head.
const maxMessage = 48 << 10

// messageHead is the length of a message, and its complement.
const messageHead = 8

// piece has room for a message and for what it should be.
type piece struct {
	b       [messageHead + maxMessage]byte
	scratch [maxMessage]byte
}

var pieces = sync.Pool{New: func() any { return new(piece) }}

// errWrong is returned for bytes that are not those that were sent.
var errWrong = errors.New("wrong bytes")

func writeMessage(c net.Conn, p *piece, n int, id uint64, d pattern.Direction, offset int64) error {
	binary.LittleEndian.PutUint32(p.b[:], uint32(n))
	binary.LittleEndian.PutUint32(p.b[4:], ^uint32(n))
	pattern.Fill(p.b[messageHead:messageHead+n], id, d, offset)
	_, err := c.Write(p.b[:messageHead+n])
	return err
}

// readMessage reads a message and checks each byte.
func readMessage(c net.Conn, p *piece, id uint64, d pattern.Direction, offset int64) (int, error) {
	if _, err := io.ReadFull(c, p.b[:messageHead]); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(p.b[:])
	if n != ^binary.LittleEndian.Uint32(p.b[4:]) || n > maxMessage {
		whose := "nobody"
		if flow, d, at, ok := pattern.Owner(p.b[:messageHead]); ok {
			whose = fmt.Sprintf("flow %d, %v, offset %d", flow, d, at)
		}
		return 0, fmt.Errorf("%w: flow %d, %v, offset %d: no head of a message: % x (%s)", errWrong, id, d, offset, p.b[:messageHead], whose)
	}
	b := p.b[messageHead : messageHead+n]
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, err
	}
	if _, wrong := pattern.Compare(b, p.scratch[:], id, d, offset); wrong != nil {
		return 0, fmt.Errorf("%w: flow %d, %v, offset %d: %s", errWrong, id, d, wrong.Offset, wrong.Text)
	}
	return int(n), nil
}

// exchange asks for an echo, and checks it.
func exchange(c net.Conn, id uint64, size int) error {
	p := pieces.Get().(*piece)
	defer pieces.Put(p)
	if _, err := c.Write(preface(wantEcho, id)); err != nil {
		return err
	}
	if err := writeMessage(c, p, size, id, pattern.Up, 0); err != nil {
		return err
	}
	_, err := readMessage(c, p, id, pattern.Down, 0)
	return err
}
