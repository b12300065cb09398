package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestMemory(t *testing.T) {
	m, err := NewMemory("test", 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n := len(m.Bytes()); n < 5000 || len(m.Words()) != n/8 {
		t.Fatalf("%d bytes, %d words", n, len(m.Words()))
	}
	m.Words()[3].Add(7)
	m.Bytes()[4999] = 9

	fd, errno := sys.Dup(m.FD())
	if errno != 0 {
		t.Fatal(errno)
	}
	again, err := OpenMemory(fd)
	if err != nil {
		t.Fatal(err)
	}
	again.Words()[3].Add(1)
	if n := m.Words()[3].Load(); n != 8 || again.Bytes()[4999] != 9 {
		t.Errorf("%d, %d", n, again.Bytes()[4999])
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != os.ErrClosed {
		t.Errorf("closed twice: %v", err)
	}
}

// A file that could shrink, and with it the memory of the process, is refused, and stays the caller's.
func TestMemoryOfAnythingElse(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write(make([]byte, 8192))
	if _, err := OpenMemory(int(f.Fd())); err == nil {
		t.Error("a file was taken for memory")
	}
	if _, err := f.Stat(); err != nil {
		t.Error(err)
	}
	if _, err := OpenMemory(-1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("no descriptor: %v", err)
	}
	if _, err := NewMemory("test", 0); err == nil {
		t.Error("memory of no bytes")
	}
}

// A Worker that Connect has not made has no keeper.
func TestZeroWorker(t *testing.T) {
	var w Worker
	_, upgraded := w.Upgrade(t.Context(), "", false, nil)
	for name, err := range map[string]error{
		"Hold": w.Hold([2]uint64{1}, "", []int{0}), "Flush": w.Flush(), "Ready": w.Ready(), "Prepared": w.Prepared(""), "SetTimes": w.SetTimes(Times{}),
		"Restart": w.Restart(), "HandedOver": w.HandedOver(), "Stay": w.Stay(""), "Upgrade": upgraded,
	} {
		if err != ErrLost {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{"SetPolicy": w.SetPolicy(""), "Ask": func() error { _, err := w.Ask(t.Context(), ""); return err }()} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if w.MayAsk() || w.Policy() != "" || len(w.Held()) != 0 || w.LastUpgrade() != (Upgrade{}) || w.Lost() != nil || w.Stats() != (Stats{}) {
		t.Error("something is known of no keeper")
	}
	w.OnHandOver(func() { t.Error("a hand-over to nobody") })
	w.OnRefused(func([2]uint64) { t.Error("refused by nobody") })
	w.Drop([2]uint64{1})
	w.Alive()
	w.Notify("READY=1")
	w.Exiting()
}
