package app

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A fileWatch tells when a file has changed. It watches the folders of the file and of what
// it links to: an editor, or whoever mounts configurations into containers, puts
// another file in its place.
type fileWatch struct {
	changed chan struct{} // holds one token while there is a change to look at; nil: never
	watcher *fsnotify.Watcher
	done    chan struct{}
}

// watchCalm is how long a file must stay as it is before it counts as written.
const watchDebounce = 200 * time.Millisecond

// watchFile watches a file; none has no changes. It must be closed, after an error too.
func watchFile(path string) (*fileWatch, error) {
	w := &fileWatch{}
	if path == "" {
		return w, nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return w, err
	}
	names := linkNames(path)
	for _, name := range names {
		if err := watcher.Add(filepath.Dir(name)); err != nil {
			watcher.Close()
			return w, err
		}
	}
	w.watcher, w.changed, w.done = watcher, make(chan struct{}, 1), make(chan struct{})
	go w.run(filepath.Clean(path), names)
	return w, nil
}

// links are the names of a file: its own, those of the links that it is, and that of
// the file itself without any link in its folders.
func linkNames(path string) []string {
	names := []string{filepath.Clean(path)}
	for at := path; len(names) < maxLinks; {
		to, err := os.Readlink(at)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		at = to
		names = append(names, filepath.Clean(to))
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(names, real) {
		names = append(names, real)
	}
	return names
}

const maxLinks = 40 // as the kernel has it, path_resolution(7)

func (w *fileWatch) run(path string, names []string) {
	defer close(w.done)
	calm := time.NewTimer(time.Hour)
	defer calm.Stop()
	for {
		select {
		case e, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			now := linkNames(path)
			written := slices.Contains(names, filepath.Clean(e.Name)) && !e.Has(fsnotify.Chmod)
			if !slices.Equal(now, names) {
				for _, name := range now {
					w.watcher.Add(filepath.Dir(name)) // a folder that is watched already stays
				}
				names, written = now, true
			}
			if written {
				calm.Reset(watchDebounce)
			}
		case <-calm.C:
			select {
			case w.changed <- struct{}{}:
			default:
			}
		case _, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
		}
	}
}

func (w *fileWatch) close() {
	if w.watcher != nil {
		w.watcher.Close()
		<-w.done
	}
}
