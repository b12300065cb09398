package counts

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"slices"
	"sync/atomic"
)

// A Layout describes a table.
type Layout struct {
	Name  string   `json:"name"`  // of the table
	Words []string `json:"words"` // the names of a row's words
	Key   int      `json:"key"`   // bytes of the longest key
	Rows  int      `json:"rows"`  // at most
}

// Limits of what is accepted. They bound what damaged memory can cause.
const (
	maxTables    = 32
	maxWords     = 1 << 12 // of a row
	maxKey       = 1 << 12 // bytes
	maxRows      = 1 << 20
	maxDirectory = 1 << 20 // bytes
	maxNameBytes = 128
)

// The header, in words. The directory follows it.
const (
	magicAt     = iota // written last: memory without it is new
	versionAt          // of this layout
	requiredAt         // features that a reader must know
	optionalAt         // features that a reader may ignore
	sizeAt             // words in all
	lengthAt           // bytes of the directory
	checksumAt         // CRC-64 of the directory
	headerWords = 8
)

const (
	magic   = 0x31544e554f434e50 // "PNCOUNT1"
	version = 1
)

// The words before the rows of a table.
const (
	usedAt = iota // rows from the first on that were ever used
	// What Row.MoveTo is doing, so that the next process finishes it.
	movingAt // noMove, rowMove or wordMove
	fromAt   // slots
	toAt
	wordAt       // the word that is being moved,
	fromBeforeAt // what it was in both rows
	toBeforeAt
	tableWords = 8
)

// lineWords is the number of words of a cache line. Rows begin at one, and so do their counts.
const lineWords = 8

// ErrNew is the error of Open for memory that nobody has written yet.
var ErrNew = errors.New("the memory is new")

// place is a table of the directory: its layout and where it is.
type place struct {
	Layout
	At     int `json:"at"`     // word at which it begins
	Stride int `json:"stride"` // words from one row to the next
}

// first returns the word of a row at which its counts begin, after its state and its key.
func (l *Layout) first() int { return roundUp(1+(l.Key+7)/8, lineWords) }

func (p *place) words() int { return tableWords + p.Rows*p.Stride }

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// arrange returns where the tables of layouts are, their directory, and the number of words that
// they take together.
func arrange(layouts []Layout) (places []place, directory []byte, size int, err error) {
	for _, l := range layouts {
		if err := l.check(); err != nil {
			return nil, nil, 0, err
		}
		places = append(places, place{Layout: l, Stride: l.first() + roundUp(len(l.Words), lineWords)})
	}
	if len(places) > maxTables {
		return nil, nil, 0, fmt.Errorf("%d tables", len(places))
	}
	// The positions are part of the directory, whose length depends on them: there is room for any.
	directory, err = json.Marshal(places)
	if err != nil {
		return nil, nil, 0, err
	}
	at := roundUp(headerWords+len(directory)/8+4*len(places)+1, lineWords)
	for i := range places {
		places[i].At = at
		at += places[i].words()
	}
	if directory, err = json.Marshal(places); err == nil && len(directory) > maxDirectory {
		err = errors.New("the names are too long")
	}
	return places, directory, at, err
}

func (l *Layout) check() error {
	if l.Name == "" || len(l.Name) > maxNameBytes || len(l.Words) == 0 || len(l.Words) > maxWords || l.Key < 0 || l.Key > maxKey || l.Rows <= 0 || l.Rows > maxRows {
		return fmt.Errorf("table %.20q: %d words, keys of %d bytes, %d rows", l.Name, len(l.Words), l.Key, l.Rows)
	}
	seen := make(map[string]bool, len(l.Words))
	for _, w := range l.Words {
		if w == "" || len(w) > maxNameBytes || seen[w] {
			return fmt.Errorf("table %.20q: word %.20q", l.Name, w)
		}
		seen[w] = true
	}
	return nil
}

// Size returns the number of words that memory for tables must have.
func Size(layouts ...Layout) int {
	_, _, n, err := arrange(layouts)
	if err != nil {
		panic("counts: " + err.Error())
	}
	return n
}

// readDirectory checks the header of memory and returns its tables. It accepts nothing that leads
// outside of the memory.
func readDirectory(mem []atomic.Int64) ([]place, error) {
	if len(mem) < headerWords {
		return nil, fmt.Errorf("%d words are no memory of counters", len(mem))
	}
	switch m := mem[magicAt].Load(); {
	case m == 0:
		return nil, ErrNew
	case m != magic:
		return nil, errors.New("not the memory of counters")
	}
	if v := mem[versionAt].Load(); v != version {
		return nil, fmt.Errorf("version %d of the memory of counters; known: %d", v, version)
	}
	if f := mem[requiredAt].Load(); f != 0 {
		return nil, fmt.Errorf("the memory of counters needs unknown features %#x", f)
	}
	size, length := mem[sizeAt].Load(), mem[lengthAt].Load()
	if size < headerWords || size > int64(len(mem)) || length <= 0 || length > maxDirectory || headerWords+(length+7)/8 > size {
		return nil, fmt.Errorf("memory of %d words that says %d, with a directory of %d bytes", len(mem), size, length)
	}
	directory := unpack(mem[headerWords:], int(length))
	if sum := checksum(directory); sum != mem[checksumAt].Load() {
		return nil, errors.New("the directory of the counters is damaged")
	}
	var places []place
	if err := json.Unmarshal(directory, &places); err != nil {
		return nil, fmt.Errorf("the directory of the counters: %w", err)
	}
	end := headerWords + int(length+7)/8
	if len(places) > maxTables {
		return nil, fmt.Errorf("%d tables", len(places))
	}
	for i := range places {
		p := &places[i]
		if err := p.check(); err != nil {
			return nil, err
		}
		if p.Stride < p.first()+len(p.Words) || p.Stride > 4*(maxWords+maxKey) || p.At < end || int64(p.At)+int64(p.words()) > size {
			return nil, fmt.Errorf("table %.20q is at %d, with %d words for a row", p.Name, p.At, p.Stride)
		}
		end = p.At + p.words()
		if slices.ContainsFunc(places[:i], func(other place) bool { return other.Name == p.Name }) {
			return nil, fmt.Errorf("two tables %.20q", p.Name)
		}
	}
	return places, nil
}

var crcTable = crc64.MakeTable(crc64.ECMA)

func checksum(directory []byte) int64 { return int64(crc64.Checksum(directory, crcTable)) }

// pack writes bytes into words, eight in each.
func pack(mem []atomic.Int64, b string) {
	for i := 0; i < len(b); i += 8 {
		var w uint64
		for j := range min(8, len(b)-i) {
			w |= uint64(b[i+j]) << (8 * j)
		}
		mem[i/8].Store(int64(w))
	}
}

// unpack returns n bytes that pack has written.
func unpack(mem []atomic.Int64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint64(mem[i/8].Load()) >> (8 * (i % 8)))
	}
	return b
}
