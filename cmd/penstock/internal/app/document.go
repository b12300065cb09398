package app

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"os"
	"sync"
)

// A document is a text in a file in memory that the keeper holds for the next worker. It has two copies,
// of which the older one is written, so that a worker that dies while it writes leaves the newer one:
//
//	copy 0: header, text ... copy 1: header, text ...
type document struct {
	mu     sync.Mutex
	file   *os.File
	number uint64 // of the newest copy; even numbers are in copy 0
}

const (
	maxDocument    = 64 << 20         // bytes of one text
	documentMagic  = 0x31434f444e4550 // "PENDOC1"
	documentHeader = 32               // magic, number, length and checksum of the text
)

var errNoDocument = errors.New("the document has never been written")

// read returns the newest text.
func (d *document) read() ([]byte, error) {
	texts, err := d.readBoth()
	if len(texts) == 0 {
		return nil, err
	}
	return texts[0], nil
}

// readBoth returns the texts that can be read, the newest first. If there are none, the error says why.
func (d *document) readBoth() (texts [][]byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = errNoDocument
	newest := uint64(0)
	for i := range uint64(2) {
		number, text, failed := d.readCopy(i)
		switch {
		case failed == nil && number > newest:
			newest = number
			texts = append([][]byte{text}, texts...)
		case failed == nil:
			texts = append(texts, text)
		case !errors.Is(failed, errNoDocument):
			err = failed
		}
	}
	d.number = max(d.number, newest)
	if len(texts) > 0 {
		err = nil
	}
	return texts, err
}

func (d *document) readCopy(i uint64) (number uint64, text []byte, err error) {
	var h [documentHeader]byte
	if _, err := d.file.ReadAt(h[:], copyAt(i)); err != nil {
		if errors.Is(err, io.EOF) {
			err = errNoDocument
		}
		return 0, nil, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(h[8*i:]) }
	number, size := word(1), word(2)
	switch {
	case word(0) == 0:
		return 0, nil, errNoDocument
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

// write makes text the newest one. If it is that already, the older one stays.
func (d *document) write(text []byte) error {
	if was, err := d.read(); err == nil && bytes.Equal(was, text) {
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

func (d *document) close() {
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
