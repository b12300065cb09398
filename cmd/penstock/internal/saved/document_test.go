package saved

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func newTestDocument(t *testing.T) *Document {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "document"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	d := &Document{file: f}
	t.Cleanup(d.Close)
	return d
}

// reopen is the document as the next worker finds it.
func (d *Document) reopen(t *testing.T) *Document {
	t.Helper()
	f, err := os.OpenFile(d.file.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	next := &Document{file: f}
	t.Cleanup(next.Close)
	return next
}

func TestDocument(t *testing.T) {
	d := newTestDocument(t)
	if _, err := d.Read(); !errors.Is(err, ErrNoDocument) {
		t.Fatalf("a new document: %v", err)
	}
	for i := range 20 {
		for range 2 { // the second time nothing is written
			if err := d.Write(fmt.Appendf(nil, "text %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []*Document{d, d.reopen(t)} {
			texts, err := d.ReadBoth()
			if err != nil || len(texts) != min(2, i+1) || string(texts[0]) != fmt.Sprintf("text %d", i) || i > 0 && string(texts[1]) != fmt.Sprintf("text %d", i-1) {
				t.Fatalf("after text %d: %q, %v", i, texts, err)
			}
		}
		if i%3 == 0 {
			d = d.reopen(t)
		}
	}
	if err := d.Write(make([]byte, maxDocument+1)); err == nil {
		t.Error("a text that is too long was written")
	}
}

// A worker that dies while it writes leaves the text before, at whatever byte it dies.
func TestDocumentTorn(t *testing.T) {
	first, second := bytes.Repeat([]byte("first "), 20), bytes.Repeat([]byte("second "), 30)
	for cut := 0; cut <= documentHeader; cut += 8 {
		d := newTestDocument(t)
		for _, text := range [][]byte{second, first} {
			if err := d.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		whole := newTestDocument(t)
		for _, text := range [][]byte{second, first, second} {
			if err := whole.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		at := copyAt(3 % 2)
		h := make([]byte, documentHeader)
		if _, err := whole.file.ReadAt(h, at); err != nil {
			t.Fatal(err)
		}
		if _, err := d.file.WriteAt(bytes.Replace(second, []byte("s"), []byte("S"), cut%3), at+documentHeader); err != nil {
			t.Fatal(err)
		}
		if _, err := d.file.WriteAt(h[:cut], at); err != nil {
			t.Fatal(err)
		}
		text, err := d.reopen(t).Read()
		if err != nil || !bytes.Equal(text, first) && !(cut >= documentHeader && bytes.Equal(text, second)) {
			t.Errorf("cut after %d bytes: %q, %v", cut, text, err)
		}
	}
}

// Whatever is in the file, reading it ends, with a text that was written or an error.
func FuzzDocument(f *testing.F) {
	seed := &Document{file: mustTemp(f)}
	for _, text := range []string{"one", "two", "three"} {
		if err := seed.Write([]byte(text)); err != nil {
			f.Fatal(err)
		}
	}
	for i := range uint64(2) {
		b := make([]byte, 64)
		n, _ := seed.file.ReadAt(b, copyAt(i))
		f.Add(b[:n], i == 0)
	}
	f.Fuzz(func(t *testing.T, b []byte, even bool) {
		d := newTestDocument(t)
		at := copyAt(1)
		if even {
			at = 0
		}
		if _, err := d.file.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		d.ReadBoth()
		if err := d.Write([]byte("after")); err != nil {
			t.Fatal(err)
		}
		if text, err := d.reopen(t).Read(); err != nil || string(text) != "after" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func mustTemp(f *testing.F) *os.File {
	file, err := os.OpenFile(filepath.Join(f.TempDir(), "seed"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	return file
}

// A document that is a device is not opened: who handed it on might not have been allowed to.
func TestPreviewOfDevice(t *testing.T) {
	f, err := os.OpenFile("/dev/zero", 0x200000 /* O_PATH */, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Preview(int(f.Fd())); err == nil || errors.Is(err, ErrNoDocument) {
		t.Errorf("it was opened: %v", err)
	}
	d := newTestDocument(t)
	if err := d.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	texts, err := Preview(int(d.file.Fd()))
	if err != nil || len(texts) != 1 || string(texts[0]) != "text" {
		t.Errorf("%q, %v", texts, err)
	}
}
