package saved

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// abandoned is how long nobody has written to a file that nobody will finish.
const abandoned = time.Hour

// WriteFile makes text the content of a file, as a whole or not at all: whoever reads it meanwhile, or after the host has gone
// down, finds what was there before or this. It returns when the text is on the disk. Only its owner may read it. The folder is
// created if it is not there.
//
// previous is the path at which what was there before stays; empty: nowhere. If the host goes down at a bad time, there is
// only that.
func WriteFile(path, previous string, text []byte) error {
	folder, name := filepath.Dir(path), filepath.Base(path)
	unfinished := "." + strings.TrimSuffix(name, filepath.Ext(name)) + "-"
	removeAbandoned(folder, unfinished)
	next, err := createIn(folder, unfinished+"*")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name())
	_, err = next.Write(text)
	if err == nil {
		err = next.Sync()
	}
	if closed := next.Close(); err == nil {
		err = closed
	}
	if err == nil && previous != "" {
		if err = os.Rename(path, previous); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// createIn creates a file with the mode 0600 in a folder, and the folder if it is not there.
func createIn(folder, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(folder, pattern)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(folder, 0o700); err == nil {
			f, err = os.CreateTemp(folder, pattern)
		}
	}
	return f, err
}

// removeAbandoned removes the files that processes left which were killed while they wrote: those whose names begin with a prefix, and
// that nobody has written to for long. What cannot be removed stays.
func removeAbandoned(folder, prefix string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > abandoned {
			os.Remove(filepath.Join(folder, e.Name()))
		}
	}
}
