package keeper

import (
	"encoding/binary"
	"errors"
)

// Keeper and worker talk over a pair of SOCK_SEQPACKET sockets. Each message is one send, little-endian:
//
//	0     kind
//	1     0
//	2-3   count
//	4-7   sequence number
//
// followed by count items (key, number of descriptors, length of the label, label), count keys, or
// count words and then texts, each with its length. The descriptors of items go along as SCM_RIGHTS, in
// the order of the items. Both ends come from different versions of this package during an upgrade: a later
// version appends words and texts to a message, and a reader ignores those that it does not know. A message of a new kind
// is sent only to an end that has said that it knows it: features.
const (
	protocol = 1 // changes when a version no longer understands an older one

	headerSize = 8
	maxMessage = 32 << 10
	maxWords   = 64
	maxTexts   = 16
	maxText    = 4096
	itemHead   = 16 + 2
	keySize    = 16
)

// featureAsk: the worker may ask, and the keeper answers. featureOutput: the worker has taken the keeper's output, if it had none.
// featureLinger: a worker may linger, and the next one is told.
const (
	featureAsk    = 1
	featureOutput = 2
	featureLinger = 4
)

// msgKind is the kind of a message. The numbers are part of the protocol.
type msgKind uint8

const (
	// From the keeper.
	kindWelcome   msgKind = 1 // words and texts of Start; items follow
	kindItems     msgKind = 2 // items; answered by kindGot
	kindMark      msgKind = 3 // the items with labels of Config.Standby were sent
	kindAll       msgKind = 4 // all items were sent; words: items, descriptors
	kindBegin     msgKind = 5 // the items begin from the start: forget those sent before
	kindGo        msgKind = 6 // answer to kindPrepared; words of Start
	kindHandOver  msgKind = 7 // a worker that lingers is to end
	kindHeld      msgKind = 8 // seq: the last kindHold that was read; words: items, descriptors
	kindRefused   msgKind = 9 // keys that were not taken
	kindUpgraded  msgKind = 10
	kindPolicyIs  msgKind = 11 // words: 1 if more follows; texts: a part of the policy of the worker before
	kindAnswer    msgKind = 12 // seq: of kindAsk; words: 1 if a descriptor comes along, error number; texts: why there is none
	kindLingering msgKind = 13 // words: process id, exit code and signal of the last one that has ended; process id, since when, until when, and 1 if it gives way, of each. texts: why that one has ended

	// From the worker.
	kindHello      msgKind = 32 // words: protocol, features
	kindGot        msgKind = 33 // seq: of kindItems; words: items whose descriptors all arrived
	kindPrepared   msgKind = 34 // texts: info
	kindReady      msgKind = 35
	kindAlive      msgKind = 36
	kindNotify     msgKind = 37 // texts: lines for the service manager
	kindExiting    msgKind = 38
	kindRestart    msgKind = 39
	kindHandedOver msgKind = 40 // words: 1 if the process is to be killed, because it does not know how to end; how long it lingers, and how many may
	kindHold       msgKind = 41 // items
	kindDrop       msgKind = 42 // keys
	kindUpgrade    msgKind = 43 // words: token, 1 for a dry run; texts: path
	kindFailing    msgKind = 44 // texts: why the worker is about to exit
	kindStaying    msgKind = 45 // answer to kindHandOver; texts: why the worker does not end
	kindTimes      msgKind = 46 // words of Times
	kindPolicy     msgKind = 47 // words: 1 if more follows, 1 to keep that of the worker before; texts: a part
	kindAsk        msgKind = 48 // texts: parts of a request; answered by kindAnswer
)

func (k msgKind) hasItems() bool { return k == kindItems || k == kindHold }
func (k msgKind) hasKeys() bool  { return k == kindRefused || k == kindDrop }

// fromWorker reports whether a worker sends messages of this kind.
func (k msgKind) fromWorker() bool { return k >= kindHello && k <= kindAsk }
func (k msgKind) fromKeeper() bool { return k >= kindWelcome && k <= kindLingering }

// message is a message of either end. Its slices are used again by the next parse.
type message struct {
	kind  msgKind
	seq   uint32
	items []wireItem
	keys  [][2]uint64
	words []uint64
	texts []string
}

type wireItem struct {
	key   [2]uint64
	label string
	fds   int // number of descriptors
}

var (
	errShort = errors.New("message is too short")
	errLong  = errors.New("message is too long")
	errKind  = errors.New("message of unknown kind")
	errCount = errors.New("message with a wrong count")
)

// parse sets m to what b says. It refuses a message of which any part is out of bounds. b is not referred
// to afterwards.
func (m *message) parse(b []byte) error {
	m.items, m.keys, m.words, m.texts = m.items[:0], m.keys[:0], m.words[:0], m.texts[:0]
	if len(b) < headerSize {
		return errShort
	}
	if len(b) > maxMessage {
		return errLong
	}
	m.kind = msgKind(b[0])
	m.seq = binary.LittleEndian.Uint32(b[4:])
	count := int(binary.LittleEndian.Uint16(b[2:]))
	switch {
	case !m.kind.fromKeeper() && !m.kind.fromWorker():
		return errKind
	case m.kind.hasItems():
		return m.parseItems(b[headerSize:], count)
	case m.kind.hasKeys():
		b = b[headerSize:]
		if len(b) != count*keySize {
			return errCount
		}
		for ; len(b) > 0; b = b[keySize:] {
			m.keys = append(m.keys, keyAt(b))
		}
		return nil
	}
	return m.parseControl(b)
}

// parseControl parses a message of words and texts, of any kind.
func (m *message) parseControl(b []byte) error {
	m.words, m.texts = m.words[:0], m.texts[:0]
	if len(b) < headerSize {
		return errShort
	}
	m.kind = msgKind(b[0])
	count := int(binary.LittleEndian.Uint16(b[2:]))
	b = b[headerSize:]
	if count > maxWords || len(b) < 8*count {
		return errCount
	}
	for range count {
		m.words = append(m.words, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	for len(b) > 0 {
		if len(b) < 2 || len(m.texts) == maxTexts {
			return errCount
		}
		n := int(binary.LittleEndian.Uint16(b))
		if n > maxText || len(b) < 2+n {
			return errCount
		}
		m.texts = append(m.texts, string(b[2:2+n]))
		b = b[2+n:]
	}
	return nil
}

func (m *message) parseItems(b []byte, count int) error {
	for range count {
		if len(b) < itemHead {
			return errCount
		}
		item := wireItem{key: keyAt(b), fds: int(b[16])}
		n := int(b[17])
		if item.fds > MaxDescriptors || len(b) < itemHead+n {
			return errCount
		}
		if n > 0 {
			item.label = string(b[itemHead : itemHead+n])
		}
		m.items = append(m.items, item)
		b = b[itemHead+n:]
	}
	if len(b) > 0 {
		return errCount
	}
	return nil
}

// descriptors returns the number of descriptors that should have come with the message.
func (m *message) descriptors() (n int) {
	if m.kind == kindAnswer && m.word(0) != 0 {
		return 1
	}
	for i := range m.items {
		n += m.items[i].fds
	}
	return n
}

// word returns word i, or 0 if an older version sent the message.
func (m *message) word(i int) uint64 {
	if i < len(m.words) {
		return m.words[i]
	}
	return 0
}

func (m *message) text(i int) string {
	if i < len(m.texts) {
		return m.texts[i]
	}
	return ""
}

func keyAt(b []byte) [2]uint64 {
	return [2]uint64{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// appendHeader begins a message. setCount sets its count later.
func appendHeader(b []byte, kind msgKind, seq uint32) []byte {
	b = append(b, byte(kind), 0, 0, 0)
	return binary.LittleEndian.AppendUint32(b, seq)
}

func setCount(b []byte, count int) { binary.LittleEndian.PutUint16(b[2:], uint16(count)) }

func appendKey(b []byte, key [2]uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, key[0]), key[1])
}

func appendItem(b []byte, key [2]uint64, label string, fds int) []byte {
	b = appendKey(b, key)
	b = append(b, byte(fds), byte(len(label)))
	return append(b, label...)
}

// appendControl appends a message of words and texts. Texts that are too long are cut.
func appendControl(b []byte, kind msgKind, seq uint32, words []uint64, texts ...string) []byte {
	at := len(b)
	b = appendHeader(b, kind, seq)
	setCount(b[at:], len(words))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	for _, s := range texts {
		s = s[:min(len(s), maxText)]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return b
}

// partSize is how much of a long text goes into one message.
const partSize = 4 * maxText

// parts cuts a text into texts for one message or more.
func parts(s string) (messages [][]string) {
	for first := true; first || len(s) > 0; first = false {
		var texts []string
		for part := s[:min(len(s), partSize)]; len(part) > 0; {
			n := min(len(part), maxText)
			texts, part = append(texts, part[:n]), part[n:]
		}
		messages, s = append(messages, texts), s[min(len(s), partSize):]
	}
	return messages
}

func wordOf(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
