package saved

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
)

// A Document is a text in a file in memory that the keeper holds for the next worker. It has two copies,
// of which the older one is written, so that a worker that dies while it writes leaves the newer one:
//
//	copy 0: header, text ... copy 1: header, text ...
//
// A nil *Document keeps nothing.
type Document struct {
	mu     sync.Mutex
	file   *os.File
	number uint64 // of the newest copy; even numbers are in copy 0
}

// NewDocument returns the document in a file, which belongs to it from then on.
func NewDocument(file *os.File) *Document { return &Document{file: file} }

// Preview reads both texts of the document of a worker that may still run, the newest first. The descriptor stays the caller's.
func Preview(fd int) ([][]byte, error) {
	path := "/proc/self/fd/" + strconv.Itoa(fd)
	// Landlock lets a worker hand on a device that it may not open (O_PATH), and opening one may do something.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("the document is not in memory"), err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := NewDocument(f)
	defer d.Close()
	return d.ReadBoth()
}

const (
	maxDocument    = 64 << 20         // bytes of one text
	documentMagic  = 0x31434f444e4550 // "PENDOC1"
	documentHeader = 32               // magic, number, length and checksum of the text
)

// ErrNoDocument is returned when a document is read that nobody has written.
var ErrNoDocument = errors.New("the document has never been written")

// Read returns the newest text.
func (d *Document) Read() ([]byte, error) {
	if d == nil {
		return nil, ErrNoDocument
	}
	texts, err := d.ReadBoth()
	if len(texts) == 0 {
		return nil, err
	}
	return texts[0], nil
}

// ReadBoth returns the texts that can be read, the newest first. If there are none, the error says why.
func (d *Document) ReadBoth() (texts [][]byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = ErrNoDocument
	newest := uint64(0)
	for i := range uint64(2) {
		number, text, failed := d.readCopy(i)
		switch {
		case failed == nil && number > newest:
			newest = number
			texts = append([][]byte{text}, texts...)
		case failed == nil:
			texts = append(texts, text)
		case !errors.Is(failed, ErrNoDocument):
			err = failed
		}
	}
	d.number = max(d.number, newest)
	if len(texts) > 0 {
		err = nil
	}
	return texts, err
}

func (d *Document) readCopy(i uint64) (number uint64, text []byte, err error) {
	var h [documentHeader]byte
	if _, err := d.file.ReadAt(h[:], copyAt(i)); err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrNoDocument
		}
		return 0, nil, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(h[8*i:]) }
	number, size := word(1), word(2)
	switch {
	case word(0) == 0:
		return 0, nil, ErrNoDocument
	case word(0) != documentMagic || size > maxDocument || number%2 != i || number == math.MaxUint64:
		return 0, nil, errors.New("the document is damaged")
	}
	text = make([]byte, size)
	if _, err := d.file.ReadAt(text, copyAt(i)+documentHeader); err != nil {
		return 0, nil, fmt.Errorf("read the document: %w", err)
	}
	if checksum(number, text) != word(3) {
		return 0, nil, errors.New("the document is damaged")
	}
	return number, text, nil
}

// Write makes text the newest one. If it is that already, the older one stays.
func (d *Document) Write(text []byte) error {
	if d == nil {
		return nil
	}
	if was, err := d.Read(); err == nil && bytes.Equal(was, text) {
		return nil
	}
	if len(text) > maxDocument {
		return fmt.Errorf("a document of %d bytes; allowed: up to %d", len(text), maxDocument)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	number := d.number + 1
	at := copyAt(number % 2)
	if _, err := d.file.WriteAt(text, at+documentHeader); err != nil {
		return err
	}
	var h []byte
	for _, w := range [...]uint64{documentMagic, number, uint64(len(text)), checksum(number, text)} {
		h = binary.LittleEndian.AppendUint64(h, w)
	}
	if _, err := d.file.WriteAt(h, at); err != nil {
		return err
	}
	d.number = number
	return nil
}

// Close closes the file. The keeper has another descriptor of it.
func (d *Document) Close() {
	if d != nil {
		d.file.Close()
	}
}

func copyAt(i uint64) int64 { return int64(i) * (maxDocument + documentHeader) }

func checksum(number uint64, text []byte) uint64 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], number)
	return crc64.Update(crc64.Checksum(n[:], documentTable), documentTable, text)
}

var documentTable = crc64.MakeTable(crc64.ECMA)
