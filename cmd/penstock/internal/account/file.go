package account

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// batch collects lines that are written together.
type batch struct {
	buf  []byte
	ends []int // where each line ends
}

// maxBatch is the size at which a batch is written even if more lines follow.
const maxBatch = 64 << 10

// lines returns the number of whole lines in the first n bytes.
func (b *batch) lines(n int) (whole int) {
	for _, end := range b.ends {
		if end > n {
			break
		}
		whole++
	}
	return whole
}

func (b *batch) reset() { b.buf, b.ends = b.buf[:0], b.ends[:0] }

// file is a sink that writes to a file, a FIFO or a standard stream. A FIFO is also
// opened for reading, so that it can be opened, and written to until it is full,
// while it has no reader.
type file struct {
	batch
	name    string // empty for a standard stream, which is never closed
	mode    fs.FileMode
	format  formatter
	ask     func(path string) (*os.File, error) // opens what this process may not open; nil: opening it fails
	midLine bool                                // the last write ended in the middle of a line
	retryAt time.Time                           // without a file: when it is tried to open it again
	lastErr error                               // why it could not be opened

	mu sync.Mutex
	f  *os.File // guarded by mu, because abort reads it too; nil: it could not be opened
}

// fileRetryPause is the time between attempts to open a file that could not be opened at first.
const fileRetryPause = time.Second

func newFile(name string, mode uint32, format formatter, how Opening) (*file, error) {
	s := &file{name: name, mode: fs.FileMode(mode), format: format, ask: how.Ask}
	if err := s.reopen(); err != nil && !how.Retry {
		return nil, err
	}
	return s, nil
}

// tornFile reports whether a file ends in the middle of a line: whoever wrote it was killed while it did.
func tornFile(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	r, err := os.Open(f.Name()) // f cannot be read
	if err != nil {
		return false
	}
	defer r.Close()
	var last [1]byte
	_, err = r.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

func (s *file) open() (*os.File, error) {
	f, err := s.openSelf()
	if s.ask != nil && errors.Is(err, fs.ErrPermission) {
		if asked, failed := s.ask(s.name); failed == nil {
			return asked, nil
		}
	}
	return f, err
}

func (s *file) openSelf() (*os.File, error) {
	if info, err := os.Stat(s.name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return os.OpenFile(s.name, os.O_RDWR, 0)
	}
	f, err := os.OpenFile(s.name, os.O_APPEND|os.O_WRONLY|os.O_CREATE|os.O_EXCL, s.mode)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(s.name, os.O_APPEND|os.O_WRONLY, 0)
	}
	if err == nil {
		// The umask has been applied, but the configured mode wins.
		if err = f.Chmod(s.mode); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, err
}

func (s *file) put(e *Entry) (written, failed int, err error) {
	if s.f == nil && (time.Now().Before(s.retryAt) || s.reopen() != nil) {
		return 0, 1, s.lastErr
	}
	if s.midLine {
		s.buf, s.midLine = append(s.buf, '\n'), false
	}
	s.buf = append(s.format(s.buf, e), '\n')
	s.ends = append(s.ends, len(s.buf))
	if len(s.buf) < maxBatch {
		return 0, 0, nil
	}
	return s.flush()
}

func (s *file) flush() (written, failed int, err error) {
	if len(s.ends) == 0 {
		return 0, 0, nil
	}
	n, err := s.f.Write(s.buf)
	written = s.lines(n)
	failed = len(s.ends) - written
	if n > 0 {
		s.midLine = s.buf[n-1] != '\n'
	} else {
		s.midLine = s.buf[0] == '\n' // still: its end was not written
	}
	s.reset()
	return written, failed, err
}

func (s *file) reopen() error {
	if s.name == "" {
		return nil
	}
	f, err := s.open()
	if err != nil {
		s.lastErr, s.retryAt = err, time.Now().Add(fileRetryPause)
		return err
	}
	s.mu.Lock()
	old := s.f
	s.f = f
	s.mu.Unlock()
	s.midLine = tornFile(f)
	if old == nil {
		return nil
	}
	return old.Close()
}

func (s *file) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil {
		return
	}
	s.f.SetWriteDeadline(time.Unix(1, 0)) // files on a disk have no deadline, but do not block for long either
}

func (s *file) close() {
	if s.name != "" && s.f != nil {
		s.f.Close()
	}
}
