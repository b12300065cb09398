package sources

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// A Watch reports changes of files, and of the files of folders. It watches the directories of
// the files and of every link on the paths to them: an editor, or a container's volume mount,
// replaces files.
type Watch struct {
	Changed chan struct{} // receives after a change; nil: never
	watcher *fsnotify.Watcher
	done    chan struct{}

	mu      sync.Mutex
	files   []string        // what Follow was told
	folders []string        // the same
	names   map[string]bool // of files and folders, as linkNames has them
}

// watchDebounce is how long a file must stay unchanged before the change is reported.
const watchDebounce = 200 * time.Millisecond

// WatchFiles watches the inputs of a configuration; nil never changes. The caller must close the
// watch, after an error too.
func WatchFiles(s *config.Source) (*Watch, error) {
	w := &Watch{}
	if s == nil {
		return w, nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return w, err
	}
	w.watcher, w.Changed, w.done = watcher, make(chan struct{}, 1), make(chan struct{})
	err = w.Follow(s.Inputs())
	go w.run()
	return w, err
}

// Follow makes these the files and folders to watch. The error is the first of watching one of
// them.
func (w *Watch) Follow(files, folders []string) (first error) {
	if w.watcher == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files, w.folders = files, folders
	w.names = w.currentNames()
	dirs := map[string]bool{}
	for name := range w.names {
		dirs[filepath.Dir(name)] = true
	}
	for _, folder := range folders {
		dirs[filepath.Clean(folder)] = true
	}
	for dir := range dirs {
		if err := w.watcher.Add(dir); err != nil && first == nil { // a directory that is watched already stays
			first = err
		}
	}
	for _, dir := range w.watcher.WatchList() {
		if !dirs[dir] {
			w.watcher.Remove(dir)
		}
	}
	return first
}

// currentNames returns the names that files and folders have now. The caller holds the lock.
func (w *Watch) currentNames() map[string]bool {
	names := map[string]bool{}
	for _, list := range [2][]string{w.files, w.folders} {
		for _, path := range list {
			for _, name := range linkNames(path) {
				names[name] = true
			}
		}
	}
	return names
}

// affects reports whether an event changes the configuration.
func (w *Watch) affects(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	w.mu.Lock()
	name := filepath.Clean(e.Name)
	ext := filepath.Ext(name)
	inFolder := (ext == ".yaml" || ext == ".yml") && slices.ContainsFunc(w.folders, func(f string) bool { return filepath.Clean(f) == filepath.Dir(name) })
	affects := w.names[name] || inFolder
	moved := !e.Has(fsnotify.Write) && !maps.Equal(w.currentNames(), w.names) // a link leads elsewhere
	files, folders := w.files, w.folders
	w.mu.Unlock()
	if moved {
		w.Follow(files, folders)
	}
	return affects || moved
}

// linkNames returns the names by which a file is found: its own, those of all links on the way, also
// of folders, and that of the file itself.
func linkNames(path string) []string {
	names := []string{filepath.Clean(path)}
	at, rest := "", strings.Split(filepath.Clean(path), "/")
	if filepath.IsAbs(path) {
		at = "/"
	}
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // at has no links, so that .. is the folder that it is in
		rest = rest[1:]
		to, err := os.Readlink(next)
		if err != nil || links == maxLinks {
			at = next
			continue
		}
		links++
		names = append(names, next)
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(filepath.Clean(to), "/"), rest...)
	}
	if !slices.Contains(names, at) {
		names = append(names, at)
	}
	return names
}

const maxLinks = 40 // as the kernel has it, path_resolution(7)

func (w *Watch) run() {
	defer close(w.done)
	debounce := time.NewTimer(time.Hour)
	defer debounce.Stop()
	for {
		select {
		case e, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			if w.affects(e) {
				debounce.Reset(watchDebounce)
			}
		case <-debounce.C:
			select {
			case w.Changed <- struct{}{}:
			default:
			}
		case _, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
		}
	}
}

// Close ends the watch.
func (w *Watch) Close() {
	if w.watcher != nil {
		w.watcher.Close()
		<-w.done
	}
}
