package app

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// An answersFile keeps the last good answers of registries on disk: the members of groups are there at
// once after a start, even if a registry is away. A nil *answersFile keeps none.
type answersFile struct {
	path string
	log  *slog.Logger
}

// Times of saving. A write is also delayed by answersShare times what the last one took.
const (
	answersInterval = 3 * time.Second
	answersShare    = 100
)

// newAnswersFile returns the file in a folder, which may be empty: none.
func newAnswersFile(folder string, log *slog.Logger) *answersFile {
	if folder == "" {
		return nil
	}
	return &answersFile{filepath.Join(folder, "members.json"), log}
}

// read returns what was kept. A file that cannot be read is reported, and ignored.
func (f *answersFile) read() []upstream.SavedLookup {
	if f == nil {
		return nil
	}
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []upstream.SavedLookup
	if err == nil {
		defer in.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(in, upstream.MaxAnswers+1)); err == nil {
			list, err = upstream.DecodeAnswers(text)
		}
	}
	if err != nil {
		f.log.Warn("the last good answers of registries cannot be used", "file", f.path, "error", err)
	}
	return list
}

// write keeps answers. It replaces the file as a whole.
func (f *answersFile) write(list []upstream.SavedLookup) error {
	text, err := upstream.EncodeAnswers(list)
	if err != nil {
		return err
	}
	return saved.WriteFile(f.path, "", text)
}

// saveAnswers keeps the answers whenever they have changed, and at the end.
func (d *daemon) saveAnswers() {
	saved, failed := uint64(0), false
	save := func() time.Duration {
		revision := d.set.AnswersRevision()
		if revision == saved {
			return 0
		}
		start := time.Now()
		err := d.answers.write(d.set.GoodAnswers())
		if err != nil && !failed {
			d.log.Warn("the last good answers of registries cannot be kept", "error", err)
		}
		if failed = err != nil; !failed {
			saved = revision
		}
		return time.Since(start)
	}
	tick := time.NewTimer(answersInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(max(answersInterval, answersShare*save()))
		case <-d.closing:
			save()
			return
		}
	}
}
