package app

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// maxLogWaiting bounds the bytes of lines that wait to be written.
	maxLogQueued = 1 << 20
	// logCloseWait bounds how long close waits for a reader that does not read.
	logCloseWait = time.Second
)

// A logWriter writes the daemon's log. Nobody waits for it: standard error may be a
// pipe that nobody reads, or a terminal that was stopped. Lines that find too many others
// waiting are lost and counted, and so are lines that could not be written.
type logWriter struct {
	out  io.Writer
	wake chan struct{} // holds one token
	quit chan struct{}
	done chan struct{}
	once sync.Once

	// tell is called after lines were lost, once others can be written again.
	onDropped func(dropped int64)
	// last is called before the end: what it logs is written too.
	beforeClose func()

	mu       sync.Mutex
	queued   []byte
	dropped  int64
	reported int64 // of lost
}

// newLogWriter starts a writer to out. It must be closed.
func newLogWriter(out io.Writer) *logWriter {
	w := &logWriter{out: out, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}), onDropped: func(int64) {}, beforeClose: func() {}}
	go w.run()
	return w
}

// Write takes one line and does not block.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	if len(w.queued)+len(line) > maxLogQueued {
		w.dropped++
		w.mu.Unlock()
		return len(line), nil
	}
	w.queued = append(w.queued, line...)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// losses is the number of lines that were lost since the start.
func (w *logWriter) droppedLines() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// close writes what waits, for logCloseWait at most.
func (w *logWriter) close() {
	w.once.Do(func() {
		w.beforeClose()
		close(w.quit)
	})
	late := time.NewTimer(logCloseWait)
	defer late.Stop()
	select {
	case <-w.done:
	case <-late.C:
	}
}

func (w *logWriter) run() {
	defer close(w.done)
	var spare []byte
	for ended := false; ; {
		spare = w.flush(spare)
		if ended {
			return
		}
		select {
		case <-w.wake:
		case <-w.quit:
			ended = true // once more, for what came meanwhile
		}
	}
}

// flush writes what waits. It returns the memory for the lines that come next but one.
func (w *logWriter) flush(spare []byte) []byte {
	for {
		w.mu.Lock()
		lines := w.queued
		w.queued = spare[:0]
		w.mu.Unlock()
		if len(lines) == 0 {
			return lines
		}
		n, err := w.out.Write(lines)
		w.mu.Lock()
		if err != nil {
			w.dropped += int64(bytes.Count(lines[n:], []byte("\n")))
		}
		news := w.dropped - w.reported
		if err == nil {
			w.reported = w.dropped
		}
		w.mu.Unlock()
		if err == nil && news > 0 {
			w.onDropped(news)
		}
		spare = lines
	}
}
