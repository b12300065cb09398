package upstream

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/saved"
)

// An AnswersFile keeps the last good answers of registries on disk: the members of groups are there at
// once after a start, even if a registry is away. A nil *AnswersFile keeps none.
type AnswersFile struct {
	path string
	log  *slog.Logger
}

// Times of saving. A write is also delayed by answersShare times what the last one took.
const (
	answersInterval = 3 * time.Second
	answersShare    = 100
)

// NewAnswersFile returns the file in a folder, which may be empty: none. It logs what cannot be read or written.
func NewAnswersFile(folder string, log *slog.Logger) *AnswersFile {
	if folder == "" {
		return nil
	}
	return &AnswersFile{filepath.Join(folder, "members.json"), log}
}

// Read returns what was kept, for Options.LastGood. A file that cannot be read is reported, and ignored.
func (f *AnswersFile) Read() []SavedLookup {
	if f == nil {
		return nil
	}
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []SavedLookup
	if err == nil {
		defer in.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(in, MaxAnswers+1)); err == nil {
			list, err = DecodeAnswers(text)
		}
	}
	if err != nil {
		f.log.Warn("the last good answers of registries cannot be used", "file", f.path, "error", err)
	}
	return list
}

// write keeps answers. It replaces the file as a whole.
func (f *AnswersFile) write(list []SavedLookup) error {
	text, err := EncodeAnswers(list)
	if err != nil {
		return err
	}
	return saved.WriteFile(f.path, "", text)
}

// Follow keeps the answers of a Set whenever they have changed, and once more when closing is closed. It returns after that.
func (f *AnswersFile) Follow(set *Set, closing <-chan struct{}) {
	if f == nil {
		return
	}
	saved, failed := uint64(0), false
	save := func() time.Duration {
		revision := set.AnswersRevision()
		if revision == saved {
			return 0
		}
		start := time.Now()
		err := f.write(set.GoodAnswers())
		if err != nil && !failed {
			f.log.Warn("the last good answers of registries cannot be kept", "error", err)
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
		case <-closing:
			save()
			return
		}
	}
}
