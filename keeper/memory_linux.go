package keeper

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
)

// errMemory is the error for a descriptor that is not a Memory's.
var errMemory = errors.New("keeper: not memory that can be shared: its size may change, or it cannot be written")

// Memory is memory that outlives the process if its descriptor is held: the next worker opens the same
// memory, with everything that was written to it, whenever and however the process ended. Its size
// never changes. It takes only as many pages as were used.
//
// What two stores write is not written at once: a process that is killed may have done the
// first only. The owner arranges for that, for instance by writing last what makes the rest valid.
type Memory struct {
	fd    int
	bytes []byte
}

// NewMemory returns memory of at least size bytes, all of them zero. The name is for people: it is shown
// in /proc/PID/maps. The caller has to close the memory.
func NewMemory(name string, size int) (*Memory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("keeper: memory of %d bytes", size)
	}
	page := os.Getpagesize()
	fd, errno := sys.Memfd(name, (int64(size)+int64(page)-1)/int64(page)*int64(page))
	if errno != 0 {
		return nil, os.NewSyscallError("memfd_create", errno)
	}
	m, err := OpenMemory(fd)
	if err != nil {
		sys.Linux{}.Close(fd)
	}
	return m, err
}

// OpenMemory returns the memory that a worker before this one had held: fd is its descriptor, which
// belongs to the Memory from now on, unless there is an error. A descriptor of
// anything else than a Memory is refused.
func OpenMemory(fd int) (*Memory, error) {
	size, errno := sys.SealedSize(fd)
	switch {
	case errno == sys.EBADF:
		return nil, os.NewSyscallError("fcntl", errno)
	case errno != 0 || size <= 0:
		return nil, errMemory
	}
	b, errno := sys.Map(fd, size)
	if errno != 0 {
		return nil, os.NewSyscallError("mmap", errno)
	}
	return &Memory{fd: fd, bytes: b}, nil
}

// FD returns the descriptor, for [Worker.Hold].
func (m *Memory) FD() int { return m.fd }

// Bytes returns the memory. It must not be used after Close.
func (m *Memory) Bytes() []byte { return m.bytes }

// Words returns the memory as words that are read and written atomically. It must not be used after
// Close.
func (m *Memory) Words() []atomic.Int64 { return sys.Words(m.bytes) }

// Close unmaps the memory and closes the descriptor. What the keeper holds is not touched.
func (m *Memory) Close() error {
	if m.bytes == nil {
		return os.ErrClosed
	}
	b, fd := m.bytes, m.fd
	m.bytes, m.fd = nil, -1
	err := sys.Unmap(b)
	if err2 := (sys.Linux{}).Close(fd); err == 0 {
		err = err2
	}
	if err != 0 {
		return os.NewSyscallError("munmap", err)
	}
	return nil
}
