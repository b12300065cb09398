package certs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Bounds of files, in bytes.
const (
	maxFile    = 1 << 20  // with certificates or keys
	maxCRL     = 16 << 20 // with lists of revoked certificates
	maxStaple  = 64 << 10
	maxTickets = 64 << 10
)

// settled is how old a file must be for its time to tell a later change: a file that was just written may change again
// within the tick of the clock of its file system.
const settled = 2 * time.Second

// Options say how files are read, and what is made of them.
type Options struct {
	// Ask opens a file that this process may not open itself; nil: nobody can.
	Ask func(path string) (*os.File, error)
	// Now returns the time; nil: time.Now.
	Now func() time.Time
	// Incomplete makes Open return a server whatever is wrong: handshakes that need what cannot be read fail, until Refresh can read it.
	Incomplete bool
	// KernelTLS returns why connections cannot be given to the kernel; it is called if tls.kernel asks for that. nil: none are, and the kernel is
	// not asked.
	KernelTLS func() error
}

func (o *Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// open opens a regular file, or a folder. Others are not even opened: a pipe would wait for its other end.
func (o *Options) open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil, errNoFile
	}
	f := (*os.File)(nil)
	if err == nil {
		f, err = os.Open(path)
	}
	if o.Ask != nil && errors.Is(err, fs.ErrPermission) {
		if asked, failed := o.Ask(path); failed == nil {
			return asked, nil
		}
	}
	return f, err
}

var errNoFile = errors.New("is not a regular file")

// stat returns what a path leads to.
func (o *Options) stat(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if o.Ask == nil || !errors.Is(err, fs.ErrPermission) {
		return info, err
	}
	f, err := o.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// A stamp tells whether a file is the one that was read.
type stamp struct {
	path string
	info os.FileInfo // nil: it was not there
	read time.Time
}

// read returns the content of a file, and its stamp, which is valid after an error, too.
func (o *Options) read(path string, most int64) ([]byte, stamp, error) {
	s := stamp{path: path, read: time.Now()}
	f, err := o.open(path)
	if err != nil {
		return nil, s, err
	}
	defer f.Close()
	if s.info, err = f.Stat(); err != nil {
		return nil, s, err
	}
	if !s.info.Mode().IsRegular() {
		return nil, s, errNoFile
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
	case int64(len(text)) > most:
		err = fmt.Errorf("is larger than %d bytes", most)
	case len(text) == 0:
		err = errors.New("is empty")
	}
	return text, s, err
}

// changed reports whether another file may be at the path, or another content in it.
func (s *stamp) changed(o *Options) bool {
	info, err := o.stat(s.path)
	if err != nil || s.info == nil {
		return err == nil || s.info != nil
	}
	return !os.SameFile(info, s.info) || info.Size() != s.info.Size() || !info.ModTime().Equal(s.info.ModTime()) || s.read.Sub(info.ModTime()) < settled
}
