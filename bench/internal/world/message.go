//go:build linux

package world

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/pattern"
)

// prefaceSize is the length of what a client says first: what it wants, and the number of its flow.
const prefaceSize = 16

// What clients want of an upstream. A program may have more such words.
var (
	wantFlow   = [8]byte{'c', 'h', 'a', 'o', 's', 0xff, 0, '\n'} // the other side of the flow with that number
	WantAnswer = [8]byte{'f', 'a', 'u', 'l', 't', 's', 0, 'e'}   // an answer to each message, as long as the message
)

// Preface returns what a client says first.
func Preface(want [8]byte, flow uint64) []byte {
	return binary.LittleEndian.AppendUint64(want[:], flow)
}

// ReadPreface reads what a client says first.
func ReadPreface(r io.Reader) (want [8]byte, flow uint64, err error) {
	var b [prefaceSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return want, 0, err
	}
	return [8]byte(b[:]), binary.LittleEndian.Uint64(b[8:]), nil
}

var numbers atomic.Uint64

// NextNumber returns the number of another flow of this process.
func NextNumber() uint64 { return numbers.Add(1) }

// MaxMessage is the length of the longest message, without its head.
const MaxMessage = 48 << 10

// MessageHead is the length of what is in front of a message: its length, and the complement of that.
const MessageHead = 8

// A message is one with its head, and what it should be.
type message struct{ b, scratch []byte }

// room makes room for a message of n bytes.
func (p *message) room(n int) {
	if n > len(p.scratch) {
		p.b, p.scratch = append(p.b, make([]byte, MessageHead+n-len(p.b))...), make([]byte, n)
	}
}

// ErrWrong is returned for bytes that are not those that were sent.
var ErrWrong = errors.New("wrong bytes")

func (p *message) write(c net.Conn, n int, id uint64, d pattern.Direction, offset int64) error {
	p.room(n)
	binary.LittleEndian.PutUint32(p.b, uint32(n))
	binary.LittleEndian.PutUint32(p.b[4:], ^uint32(n))
	pattern.Fill(p.b[MessageHead:MessageHead+n], id, d, offset)
	_, err := c.Write(p.b[:MessageHead+n])
	return err
}

// read reads a message and checks each byte.
func (p *message) read(c net.Conn, id uint64, d pattern.Direction, offset int64) (int, error) {
	p.room(1)
	if _, err := io.ReadFull(c, p.b[:MessageHead]); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(p.b)
	if n != ^binary.LittleEndian.Uint32(p.b[4:]) || n > MaxMessage {
		whose := "nobody"
		if flow, d, at, ok := pattern.Owner(p.b[:MessageHead]); ok {
			whose = fmt.Sprintf("flow %d, %v, offset %d", flow, d, at)
		}
		return 0, fmt.Errorf("%w: flow %d, %v, offset %d: no head of a message: % x (%s)", ErrWrong, id, d, offset, p.b[:MessageHead], whose)
	}
	p.room(int(n))
	b := p.b[MessageHead : MessageHead+n]
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, err
	}
	if _, wrong := pattern.Compare(b, p.scratch, id, d, offset); wrong != nil {
		return 0, fmt.Errorf("%w: flow %d, %v, offset %d: %s", ErrWrong, id, d, wrong.Offset, wrong.Text)
	}
	return int(n), nil
}

// Ask sends one message on a connection that nothing was said on, and wants the answer.
func Ask(c net.Conn, id uint64, size int) error {
	var p message
	if _, err := c.Write(Preface(WantAnswer, id)); err != nil {
		return err
	}
	if err := p.write(c, size, id, pattern.Up, 0); err != nil {
		return err
	}
	_, err := p.read(c, id, pattern.Down, 0)
	return err
}

// Answer answers each message of a client with one of the same length, until the connection ends, and returns how it did. It calls
// wait, if that is not nil, before each answer.
func Answer(c net.Conn, id uint64, wait func()) error {
	var p message
	var up, down int64
	for {
		n, err := p.read(c, id, pattern.Up, up)
		if err != nil {
			return err
		}
		if wait != nil {
			wait()
		}
		up += int64(n)
		if err := p.write(c, n, id, pattern.Down, down); err != nil {
			return err
		}
		down += int64(n)
	}
}

// ServeAnswers answers the messages of all clients of a listener, and returns once it is closed and all have ended. Wrong bytes
// are counted in wrong.
func ServeAnswers(l net.Listener, wrong *atomic.Int64) {
	echo.Serve(l, func(c net.Conn) {
		want, id, err := ReadPreface(c)
		switch {
		case err != nil: // it has said nothing
		case want != WantAnswer, errors.Is(Answer(c, id, nil), ErrWrong):
			wrong.Add(1)
		}
	})
}
