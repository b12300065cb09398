package keeper

import (
	"os"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// event is something that happened to one worker.
type event struct {
	what what
	id   int
	msg  []byte // belongs to the reader again after conn.next
	fds  []int
	lost bool
	from *conn
}

type what uint8

const (
	gotMessage what = iota
	hungUp          // the worker has closed its end
	wasWritable
	wasPaused // the reader has ended because of conn.beginPause
	wasGone   // the process has ended and all of its messages were read; it was not reaped
)

// conn is a worker's process and the keeper's end of the connection to it. Two goroutines belong to it: one
// reads messages, one waits for the end of the process.
type conn struct {
	id, pid int
	fd      int
	out     int // what it writes before its first message, or -1
	file    *os.File
	raw     syscall.RawConn
	events  chan<- event
	next    chan struct{} // the reader may read the next message
	dead    chan struct{} // closed when the process has ended
	pausing chan struct{} // closed by beginPause
	pause   pause         // of the reader; belongs to the runner
}

// pause is the state of a reader.
type pause uint8

const (
	reading pause = iota
	pausing       // it was asked to end between two messages
	paused
)

// newConn takes over fd, a non-blocking socket, and out.
func newConn(id, pid, fd, out int, events chan<- event) (*conn, error) {
	f := os.NewFile(uintptr(fd), "worker")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &conn{id: id, pid: pid, fd: fd, out: out, file: f, raw: raw, events: events, next: make(chan struct{}), dead: make(chan struct{}), pausing: make(chan struct{})}, nil
}

// wrote returns what the process has written before its first message, if it has sent none.
func (c *conn) wrote() string {
	if c.out < 0 {
		return ""
	}
	return readOutput(c.out)
}

func (c *conn) closeOutput() {
	if c.out >= 0 {
		sys.Linux{}.Close(c.out)
		c.out = -1
	}
}

var longAgo = time.Unix(1, 0)

// watch waits for the end of the process, and then makes the reader read what is left.
func (c *conn) watch() {
	sys.WaitExit(c.pid)
	close(c.dead)
	c.file.SetReadDeadline(longAgo)
}

// afterDeath bounds the messages that are read when the process has ended: somebody else may have inherited
// its end and keep sending.
const afterDeath = 4096

// read posts messages until the process has ended, one at a time.
func (c *conn) read() {
	var fb sys.FDBuffer
	buf := make([]byte, maxMessage)
	fds := make([]int, 0, maxBatchFDs)
	left := -1
	for {
		var n int
		var lost bool
		var errno sys.Errno
		recv := func(fd uintptr) bool {
			n, fds, lost, errno = fb.Recv(int(fd), buf, fds[:0])
			return errno != sys.EAGAIN && errno != sys.EINTR || left >= 0
		}
		var err error
		if left < 0 {
			err = c.raw.Read(recv)
		} else {
			err = c.raw.Control(func(fd uintptr) { recv(fd) })
		}
		switch {
		case err != nil: // woken up
			select {
			case <-c.pausing:
				c.events <- event{what: wasPaused, id: c.id, from: c}
				return
			case <-c.dead:
				left = afterDeath
				continue
			}
		case errno == sys.EINTR, errno == sys.ECONNRESET:
			// ECONNRESET comes once, and before what is still to be read: the worker died before it had
			// read everything (unix_release_sock, __skb_try_recv_datagram, Linux 6.18).
			continue
		case n > 0 && left != 0:
			if left > 0 {
				left--
			}
			c.events <- event{what: gotMessage, id: c.id, msg: buf[:n], fds: fds, lost: lost, from: c}
			<-c.next
			continue
		}
		for _, fd := range fds { // of an empty message
			sys.Linux{}.Close(fd)
		}
		fds = fds[:0]
		if left < 0 {
			c.events <- event{what: hungUp, id: c.id, from: c}
			select {
			case <-c.dead:
			case <-c.pausing:
				c.events <- event{what: wasPaused, id: c.id, from: c}
				return
			}
		}
		c.events <- event{what: wasGone, id: c.id, from: c}
		return
	}
}

// beginPause ends the reader between two messages.
func (c *conn) beginPause() {
	c.pause = pausing
	close(c.pausing)
	c.file.SetReadDeadline(longAgo)
}

// resume starts the reader again.
func (c *conn) resume() {
	c.pause = reading
	c.pausing = make(chan struct{})
	c.file.SetReadDeadline(time.Time{})
	select {
	case <-c.dead:
		c.file.SetReadDeadline(longAgo)
	default:
	}
	go c.read()
}

// waitWritable posts wasWritable as soon as there is room in the socket.
func (c *conn) waitWritable() {
	c.raw.Write(func(fd uintptr) bool { return sys.Writable(int(fd)) })
	c.events <- event{what: wasWritable, id: c.id, from: c}
}
