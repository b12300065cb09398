package app

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// savedLists keep the last good content of lists that are not files in the folder of --state: a start at which a list cannot be loaded
// begins with it.
type savedLists struct {
	folder string // empty: none
	mu     sync.Mutex
	last   map[string]savedList
}

// savedList is what was written last.
type savedList struct {
	set    *lists.Set
	at     time.Time
	failed bool // it could not be written, which was said
}

// How often a list is written: one that changes all the time, and one that does not, whose file tells when it was loaded last.
const (
	saveChangedEvery = time.Minute
	saveSameEvery    = time.Hour
)

// maxSavedList bounds the file of a list: each network has less than 60 bytes.
const maxSavedList = 60*lists.MaxNetworks + 1<<16

func (s *savedLists) path(name string) string { return filepath.Join(s.folder, "list-"+name+".txt") }

// due notes that a list is written now, and returns its networks and when they were loaded; nil: it is not to be written.
func (s *savedLists) due(l *lists.List, now time.Time, final bool) (*lists.Set, time.Time) {
	at, set := l.Status(), l.Set()
	if s.folder == "" || l.Spec.File != "" || at.Loaded.IsZero() || at.Saved {
		return nil, now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.last[l.Spec.Name]
	age := now.Sub(was.at)
	if was.set != nil && age < saveSameEvery && (was.set == set || !final && age < saveChangedEvery || was.set.Equal(set)) {
		return nil, now
	}
	if s.last == nil {
		s.last = map[string]savedList{}
	}
	s.last[l.Spec.Name] = savedList{set, now, was.failed}
	return set, at.Loaded
}

// saveList writes a list if it has changed.
func (d *daemon) saveList(l *lists.List, final bool) {
	s := &d.savedLists
	set, loaded := s.due(l, time.Now(), final)
	if set == nil {
		return
	}
	err := saved.WriteFile(s.path(l.Spec.Name), "", l.Saved(set, loaded))
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.last[l.Spec.Name]
	if err != nil && !was.failed {
		d.log.Warn("the list cannot be written for the next start", "list", l.Spec.Name, "error", d.sandboxed.Explain(err))
	}
	was.failed = err != nil
	s.last[l.Spec.Name] = was
}

// restoreList begins with what was saved of a list that is not a file.
func (d *daemon) restoreList(l *lists.List) {
	s := &d.savedLists
	if s.folder == "" || l.Spec.File != "" || !l.Status().Loaded.IsZero() {
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
