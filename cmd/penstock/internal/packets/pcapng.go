package packets

import (
	"encoding/binary"
	"io"
	"strings"
	"time"
)

// The parts of pcapng that are written here: draft-ietf-opsawg-pcapng, sections 4.1 to 4.6.
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	byteOrder = 0x1A2B3C4D
	linkRaw   = 101 // LINKTYPE_RAW: packets begin with the header of IPv4 or IPv6

	optionEnd     = 0
	optionComment = 1

	sectionProgram = 4 // shb_userappl

	interfaceName        = 2 // if_name
	interfaceDescription = 3 // if_description
	interfaceResolution  = 9 // if_tsresol

	packetFlags = 2 // epb_flags

	statisticsReceived  = 4 // isb_ifrecv
	statisticsDropped   = 7 // isb_osdrop
	statisticsDelivered = 8 // isb_usrdeliv
)

// maxText is how long a comment or a name may be, in bytes.
const maxText = 1024

// Directions of a packet, as epb_flags has them.
const (
	inbound  = 1
	outbound = 2
)

// writer writes a file of pcapng. Its numbers are little-endian. After the first error nothing is written.
type writer struct {
	w          io.Writer
	buf        []byte
	written    int64 // bytes
	interfaces uint32
	snap       int
	err        error
}

// newWriter returns a writer whose section has begun. program and comment describe it; of a packet at most snap bytes are written.
func newWriter(w io.Writer, snap int, program, comment string) *writer {
	f := &writer{w: w, snap: snap}
	f.begin(blockSection)
	f.numbers32(byteOrder)
	f.buf = binary.LittleEndian.AppendUint16(f.buf, 1) // version 1.0
	f.buf = binary.LittleEndian.AppendUint16(f.buf, 0)
	f.buf = binary.LittleEndian.AppendUint64(f.buf, 1<<64-1) // the length of the section is not known
	f.text(sectionProgram, program)
	f.text(optionComment, comment)
	f.end()
	return f
}

// addInterface returns the number of a new interface.
func (f *writer) addInterface(name, description, comment string) uint32 {
	f.begin(blockInterface)
	f.buf = binary.LittleEndian.AppendUint16(f.buf, linkRaw)
	f.buf = binary.LittleEndian.AppendUint16(f.buf, 0)
	f.numbers32(uint32(f.snap))
	f.text(interfaceName, name)
	f.text(interfaceDescription, description)
	f.option(interfaceResolution, []byte{9}) // nanoseconds
	f.text(optionComment, comment)
	f.end()
	f.interfaces++
	return f.interfaces - 1
}

// packetSize returns how many bytes a packet takes, without its comment.
func packetSize(captured int) int64 { return int64(32 + (captured+3)/4*4 + 12) }

// packet writes a packet of an interface. length is how long it was.
func (f *writer) packet(on uint32, at time.Time, length int, data []byte, direction byte, comment string) {
	data = data[:min(len(data), f.snap)]
	f.begin(blockPacket)
	f.numbers32(on)
	f.time(at)
	f.numbers32(uint32(len(data)), uint32(max(length, len(data))))
	f.buf = append(f.buf, data...)
	f.pad()
	f.option(packetFlags, []byte{direction, 0, 0, 0})
	f.text(optionComment, comment)
	f.end()
}

// statistics writes how many packets an interface had, how many of them were written, and how many were dropped.
func (f *writer) statistics(on uint32, at time.Time, received, delivered, dropped int64, comment string) {
	f.begin(blockStatistics)
	f.numbers32(on)
	f.time(at)
	for _, n := range []struct {
		code  uint16
		value int64
	}{{statisticsReceived, received}, {statisticsDropped, dropped}, {statisticsDelivered, delivered}} {
		f.option(n.code, binary.LittleEndian.AppendUint64(nil, uint64(n.value)))
	}
	f.text(optionComment, comment)
	f.end()
}

// begin begins a block; its length follows in end.
func (f *writer) begin(kind uint32) {
	f.buf = f.buf[:0]
	f.numbers32(kind, 0)
}

// end writes the block, which ends with its length.
func (f *writer) end() {
	f.numbers32(optionEnd)
	size := uint32(len(f.buf) + 4)
	binary.LittleEndian.PutUint32(f.buf[4:], size)
	f.numbers32(size)
	if f.err != nil {
		return
	}
	n, err := f.w.Write(f.buf)
	f.written += int64(n)
	f.err = err
}

func (f *writer) numbers32(all ...uint32) {
	for _, n := range all {
		f.buf = binary.LittleEndian.AppendUint32(f.buf, n)
	}
}

// time appends a time in nanoseconds, its upper half first.
func (f *writer) time(at time.Time) {
	ns := uint64(at.UnixNano())
	f.numbers32(uint32(ns>>32), uint32(ns))
}

// text appends an option that is text, unless it is empty.
func (f *writer) text(code uint16, text string) {
	if text == "" {
		return
	}
	text = strings.ToValidUTF8(text, "\uFFFD") // before it is cut: a replacement is longer than what it replaces
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-3], "") + "..."
	}
	f.option(code, []byte(text))
}

func (f *writer) option(code uint16, value []byte) {
	f.buf = binary.LittleEndian.AppendUint16(f.buf, code)
	f.buf = binary.LittleEndian.AppendUint16(f.buf, uint16(len(value)))
	f.buf = append(f.buf, value...)
	f.pad()
}

// pad appends zeros up to a multiple of four bytes.
func (f *writer) pad() {
	for len(f.buf)%4 != 0 {
		f.buf = append(f.buf, 0)
	}
}
