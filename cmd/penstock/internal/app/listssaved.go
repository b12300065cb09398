package app

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// savedLists is where the last good content of lists that are not files is, in the folder of --state: a start at which a list cannot be
// loaded begins with it.
type savedLists struct {
	folder string // empty: none

	mu sync.Mutex // held while a file is written, or removed
}

// maxSavedList bounds the file of a list: each network has less than 60 bytes.
const maxSavedList = 60*lists.MaxNetworks + 1<<16

func (s *savedLists) path(name string) string { return filepath.Join(s.folder, "list-"+name+".txt") }

// saveList writes a list if it has changed.
func (d *daemon) saveList(l *lists.List, final bool) {
	s := &d.savedLists
	if s.folder == "" || l.Spec.File != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cfg := d.active.Load(); cfg.lists.Named(l.Spec.Name) != l {
		return // it was removed meanwhile, or is another one
	}
	err := l.Save(time.Now(), final, func(text []byte) error { return saved.WriteFile(s.path(l.Spec.Name), "", text) })
	if err != nil {
		d.log.Warn("the list cannot be written for the next start", "list", l.Spec.Name, "error", d.sandboxed.Explain(err))
	}
}

// forgetLists removes the files of lists that the configuration does not have, or not from elsewhere, any more.
func (d *daemon) forgetLists(t *lists.Table) {
	s := &d.savedLists
	if s.folder == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	files, _ := filepath.Glob(s.path("*")) // the pattern is good
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "list-"), ".txt")
		if l := t.Named(name); l != nil && l.Spec.File == "" {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("what was saved of a list that is gone cannot be removed", "file", file, "error", d.sandboxed.Explain(err))
		}
	}
}

// restoreList begins with what was saved of a list that is not a file.
func (d *daemon) restoreList(l *lists.List) {
	s := &d.savedLists
	if l.Spec.File != "" || !l.Status().Loaded.IsZero() {
		return
	}
	if s.folder == "" {
		d.log.Warn("the list is empty until it is loaded, now and after each upgrade and crash, because --state names no folder to keep it in", "list", l.Spec.Name)
		return
	}
	path := s.path(l.Spec.Name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxSavedList) {
		err = errors.New("it is no saved list")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = l.Restore(text)
	}
	if err != nil {
		d.log.Warn("what was saved of the list is not used", "list", l.Spec.Name, "file", path, "error", err)
		return
	}
	at := l.Status()
	d.log.Info("the list is from the disk until it is loaded", "list", l.Spec.Name, "networks", l.Set().Len(), "loaded", at.Loaded, "age", time.Since(at.Loaded).Round(time.Second))
	d.log.event(slog.LevelInfo, "list", l.Spec.Name, "is from the disk until it is loaded: as it was "+time.Since(at.Loaded).Round(time.Second).String()+" ago")
}

// saveLists writes all lists that have changed since they were written.
func (d *daemon) saveLists(cfg *spec.Config, t *lists.Table) {
	for _, s := range cfg.Lists {
		d.saveList(t.Named(s.Name), true)
	}
}
