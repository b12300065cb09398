package remote

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// maxFile is the maximum size of a file with a key, a certificate or a token.
const maxFile = 1 << 20

// A watchedFile is a file that is read again when it has changed: when its time of modification, size or inode
// has, which includes a symbolic link that now leads elsewhere, as in a mounted secret of Kubernetes.
type watchedFile struct {
	path string

	mu      sync.Mutex
	seen    os.FileInfo
	read    time.Time // when the content was read
	content []byte
}

// get returns the content and reports whether it was read again. A file that cannot be read any more is an
// error, unless it was read before: then that content goes on being used, because a file is absent while it
// is replaced. The content must not be changed.
func (f *watchedFile) get() (content []byte, fresh bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err == nil && f.content != nil && os.SameFile(info, f.seen) && info.Size() == f.seen.Size() && info.ModTime().Equal(f.seen.ModTime()) &&
		f.read.Sub(info.ModTime()) > 2*time.Second { // a file that was just written may change again within its clock's tick
		return f.content, false, nil
	}
	var b []byte
	if err == nil {
		b, err = readFile(f.path)
	}
	if err != nil {
		if f.content != nil {
			return f.content, false, nil
		}
		return nil, false, err
	}
	f.seen, f.read, f.content = info, time.Now(), b
	return b, true, nil
}

func readFile(path string) ([]byte, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return b, err
}

// firstLine returns the first line of a file's content, without spaces around it.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
