package app

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A fileWatch reports changes of a file. It watches the directories of the file and of every link
// on the path to it: an editor, or a container's volume mount, replaces the file.
type fileWatch struct {
	changed chan struct{} // receives after a change; nil: never
	watcher *fsnotify.Watcher
	done    chan struct{}
}

// watchDebounce is how long a file must stay unchanged before the change is reported.
const watchDebounce = 200 * time.Millisecond

// watchFile watches a file; an empty path never changes. The caller must close the watch, after an
// error too.
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

// linkNames returns the names of a file: its own, those of the links on the way, and that of the
// file itself with all links in its directories resolved.
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
					w.watcher.Add(filepath.Dir(name)) // adding a directory twice is harmless
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
