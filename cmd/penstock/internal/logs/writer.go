package logs

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// maxQueued bounds the bytes of lines that are queued.
	maxQueued = 1 << 20
	// CloseWait bounds how long close waits for an output that blocks.
	CloseWait = time.Second
)

// A Writer writes the daemon's log. Its Write never blocks: standard error may be a
// pipe that nobody reads, or a terminal that was stopped. Lines that find the queue full
// are dropped and counted, and so are lines that could not be written.
type Writer struct {
	out  io.Writer
	wake chan struct{} // holds one token
	quit chan struct{}
	done chan struct{}
	once sync.Once

	// onDropped is called after lines were dropped, once others can be written again.
	onDropped func(dropped int64)
	// beforeClose is called when closing begins: what it logs is still written.
	beforeClose func()

	mu       sync.Mutex
	queued   []byte
	dropped  int64
	reported int64 // part of dropped that onDropped was told of
}

// newWriter returns a running writer to out, which the caller must close.
func newWriter(out io.Writer) *Writer {
	w := &Writer{out: out, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}), onDropped: func(int64) {}, beforeClose: func() {}}
	go w.run()
	return w
}

// Write queues one line. It does not block.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	if len(w.queued)+len(line) > maxQueued {
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

// DroppedLines returns the number of lines dropped since the start.
func (w *Writer) DroppedLines() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// Close writes what is queued, for at most CloseWait.
func (w *Writer) Close() {
	w.once.Do(func() {
		w.beforeClose()
		close(w.quit)
	})
	late := time.NewTimer(CloseWait)
	defer late.Stop()
	select {
	case <-w.done:
	case <-late.C:
	}
}

func (w *Writer) run() {
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
			ended = true // flush once more, for lines that came meanwhile
		}
	}
}

// flush writes what is queued. It returns a buffer for the lines after the next ones.
func (w *Writer) flush(spare []byte) []byte {
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
