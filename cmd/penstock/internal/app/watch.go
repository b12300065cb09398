package app

import (
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A fileWatch tells when a file has changed. It watches the file's folder: an
// editor, or whoever mounts configurations into containers, puts another file in
// its place.
type fileWatch struct {
	changed chan struct{} // holds one token while there is a change to look at; nil: never
	watcher *fsnotify.Watcher
	done    chan struct{}
}

// watchCalm is how long a file must stay as it is before it counts as written.
const watchCalm = 200 * time.Millisecond

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
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		watcher.Close()
		return w, err
	}
	w.watcher, w.changed, w.done = watcher, make(chan struct{}, 1), make(chan struct{})
	go w.run(filepath.Clean(path))
	return w, nil
}

func (w *fileWatch) run(path string) {
	defer close(w.done)
	calm := time.NewTimer(time.Hour)
	defer calm.Stop()
	real, _ := filepath.EvalSymlinks(path)
	for {
		select {
		case e, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			now, _ := filepath.EvalSymlinks(path)
			if filepath.Clean(e.Name) == path && !e.Has(fsnotify.Chmod) || now != real && now != "" {
				real = now
				calm.Reset(watchCalm)
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
