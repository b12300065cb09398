package ledger

import "github.com/penstock/penstock/internal/sys"

// Record is what a ledger knows of one flow. Its methods read and write single fields; each is one load or
// one store. The meaning of kinds, flags, causes and states is that of the package that relays.
//
// Times are on the clock CLOCK_MONOTONIC, in nanoseconds, which all processes share.
type Record struct{ p *[RecordSize]byte }

// The kinds of records.
const (
	KindStream   = 1
	KindDatagram = 2
)

const (
	// MaxBlob is the maximum number of bytes that belong to a record: 4,096 of the hooks, and what the
	// engine itself needs.
	MaxBlob = 5120

	halvesAt = 40 // of streams
	halfSize = 48
	gramAt   = 40 // of datagrams
	gramSize = 136

	inlineStream = halvesAt + 2*halfSize
	inlineGram   = gramAt + gramSize
)

// inline returns the bytes that a record holds itself; a blob that is longer takes a block. Streams have
// room for what the daemon knows of most of them.
func (r Record) inline() []byte {
	if r.Kind() == KindDatagram {
		return r.p[inlineGram:]
	}
	return r.p[inlineStream:]
}

// The common fields.

func (r Record) Generation() uint32     { return sys.Load32(r.p[0:]) }
func (r Record) SetGeneration(v uint32) { sys.Store32(r.p[0:], v) }
func (r Record) Kind() uint8            { return r.p[4] }
func (r Record) SetKind(v uint8)        { r.p[4] = v }
func (r Record) Cause() uint8           { return r.p[5] }
func (r Record) SetCause(v uint8)       { r.p[5] = v }
func (r Record) Crashes() uint8         { return r.p[6] }
func (r Record) SetCrashes(v uint8)     { r.p[6] = v }
func (r Record) State() uint8           { return r.p[7] }
func (r Record) SetState(v uint8)       { r.p[7] = v }
func (r Record) Flags() uint32          { return sys.Load32(r.p[8:]) }
func (r Record) SetFlags(v uint32)      { sys.Store32(r.p[8:], v) }
func (r Record) Listener() uint32       { return sys.Load32(r.p[12:]) } // a string
func (r Record) SetListener(ref uint32) { sys.Store32(r.p[12:], ref) }
func (r Record) Start() int64           { return int64(sys.Load64(r.p[16:])) }
func (r Record) SetStart(v int64)       { sys.Store64(r.p[16:], uint64(v)) }
func (r Record) FirstByte() int64       { return int64(sys.Load64(r.p[24:])) }
func (r Record) SetFirstByte(v int64)   { sys.Store64(r.p[24:], uint64(v)) }

// The blob's block and length are one word, so that they change together: 16 bits of length (the upper
// ones are Errno's), and 32 of reference would cross it, so the word at 32 has them and nothing else.
func (r Record) blob() (ref uint32, n int) {
	w := sys.Load64(r.p[32:])
	return uint32(w), int(w >> 32 & 0xffff)
}

func (r Record) setBlob(ref uint32, n int) {
	w := sys.Load64(r.p[32:])
	sys.Store64(r.p[32:], w&(0xffff<<48)|uint64(n)<<32|uint64(ref))
}

// Errno is the error that the flow has failed with.
func (r Record) Errno() uint16     { return sys.Load16(r.p[38:]) }
func (r Record) SetErrno(v uint16) { sys.Store16(r.p[38:], v) }

// BlobBlock returns the block with the bytes that belong to the record, for [Arena.Reserve]; a ref of 0
// means that there is none.
func (r Record) BlobBlock() (ref uint32, n int) { return r.blob() }

// Half returns what a record knows of one direction of a stream: 0 or 1.
func (r Record) Half(i int) Half { return Half{(*[halfSize]byte)(r.p[halvesAt+(i&1)*halfSize:])} }

// Half is one direction of a stream.
type Half struct{ p *[halfSize]byte }

func (h Half) In() int64          { return int64(sys.Load64(h.p[0:])) }
func (h Half) SetIn(v int64)      { sys.Store64(h.p[0:], uint64(v)) }
func (h Half) Out() int64         { return int64(sys.Load64(h.p[8:])) }
func (h Half) SetOut(v int64)     { sys.Store64(h.p[8:], uint64(v)) }
func (h Half) Spliced() int64     { return int64(sys.Load64(h.p[16:])) }
func (h Half) SetSpliced(v int64) { sys.Store64(h.p[16:], uint64(v)) }
func (h Half) InBase() int32      { return int32(sys.Load32(h.p[24:])) }
func (h Half) SetInBase(v int32)  { sys.Store32(h.p[24:], uint32(v)) }
func (h Half) OutBase() int32     { return int32(sys.Load32(h.p[28:])) }
func (h Half) SetOutBase(v int32) { sys.Store32(h.p[28:], uint32(v)) }
func (h Half) Pipe() uint32       { return sys.Load32(h.p[32:]) } // its number and 1; 0: none
func (h Half) SetPipe(v uint32)   { sys.Store32(h.p[32:], v) }
func (h Half) Errno() uint32      { return sys.Load32(h.p[36:]) } // what the source has failed with
func (h Half) SetErrno(v uint32)  { sys.Store32(h.p[36:], v) }

// Block returns the block of bytes that wait to be delivered, and how many were put there; a ref of 0
// means that there is none.
func (h Half) Block() (ref uint32, n int) {
	w := sys.Load64(h.p[40:])
	return uint32(w), int(w >> 32 & 0x7fffffff)
}

// SetBlock stores both in one word.
func (h Half) SetBlock(ref uint32, n int) {
	sys.Store64(h.p[40:], uint64(n)<<32|uint64(ref))
}

// Gram returns what a record knows of a datagram flow.
func (r Record) Gram() Gram { return Gram{(*[gramSize]byte)(r.p[gramAt:])} }

// Gram is a datagram flow.
type Gram struct{ p *[gramSize]byte }

// Addr is an IP address with port and zone as a record stores it, without pointers.
type Addr struct {
	IP   [16]byte
	Port uint16
	Zone uint32 // an interface's index
	Len  uint8  // of IP: 0, 4 or 16
}

func getAddr(b []byte) Addr {
	return Addr{IP: [16]byte(b), Port: sys.Load16(b[16:]), Len: b[18], Zone: sys.Load32(b[20:])}
}

func setAddr(b []byte, a Addr) {
	copy(b, a.IP[:])
	sys.Store16(b[16:], a.Port)
	b[18] = a.Len
	sys.Store32(b[20:], a.Zone)
}

// Client is the client's address; a Unix client's path belongs into the blob. Local is the address that
// the client has sent to.
func (g Gram) Client() Addr         { return getAddr(g.p[0:24]) }
func (g Gram) SetClient(a Addr)     { setAddr(g.p[0:24], a) }
func (g Gram) Local() Addr          { return getAddr(g.p[24:48]) }
func (g Gram) SetLocal(a Addr)      { setAddr(g.p[24:48], a) }
func (g Gram) Requests() uint64     { return sys.Load64(g.p[48:]) }
func (g Gram) SetRequests(v uint64) { sys.Store64(g.p[48:], v) }
func (g Gram) Answers() uint64      { return sys.Load64(g.p[56:]) }
func (g Gram) SetAnswers(v uint64)  { sys.Store64(g.p[56:], v) }
func (g Gram) Moved(i int) Moved    { return Moved{(*[32]byte)(g.p[64+(i&1)*32:])} }

// Socket is the number of the listener's socket that the client has sent to, and 1; 0 means that it is not
// known.
func (g Gram) Socket() uint32     { return sys.Load32(g.p[128:]) }
func (g Gram) SetSocket(v uint32) { sys.Store32(g.p[128:], v) }

// Active is when the flow carried something last, in units of 2^24 ns (17 ms), of which the upper bits are
// missing; 0 means that it is not known.
func (g Gram) Active() uint32     { return sys.Load32(g.p[132:]) }
func (g Gram) SetActive(v uint32) { sys.Store32(g.p[132:], v) }

// Moved are the counters of one direction of a datagram flow.
type Moved struct{ p *[32]byte }

func (m Moved) Read() int64          { return int64(sys.Load64(m.p[0:])) }
func (m Moved) SetRead(v int64)      { sys.Store64(m.p[0:], uint64(v)) }
func (m Moved) Written() int64       { return int64(sys.Load64(m.p[8:])) }
func (m Moved) SetWritten(v int64)   { sys.Store64(m.p[8:], uint64(v)) }
func (m Moved) Datagrams() int64     { return int64(sys.Load64(m.p[16:])) }
func (m Moved) SetDatagrams(v int64) { sys.Store64(m.p[16:], uint64(v)) }
func (m Moved) Dropped() int64       { return int64(sys.Load64(m.p[24:])) }
func (m Moved) SetDropped(v int64)   { sys.Store64(m.p[24:], uint64(v)) }
