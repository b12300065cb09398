package splice

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// shared is the pipe budget of all calls of Copy and Relay in the process.
var shared = sync.OnceValue(func() *pump.Pipes { return pump.NewPipes(sys.Linux{}, 0, 0) })

// turnBudget is how much one turn moves before deadlines and Close are checked again.
const turnBudget = 4 << 20

// move moves one direction, and reads up to limit bytes: with the pump between stream
// sockets, with sendfile(2) from a file to a stream socket, and otherwise by copying. It
// delivers read first.
func (cfg *Config) move(dst io.Writer, src io.Reader, read []byte, limit int64, w *watcher) (Transfer, bool, error) {
	out, tcpOut := stream(dst)
	in, tcp := stream(src)
	if file, ok := src.(*os.File); ok && out != nil && regular(file) && !cfg.NoSplice {
		return sendFile(dst.(net.Conn), out, file, limit, w)
	}
	if out == nil || in == nil {
		return moveUser(dst, src, read, limit, w, Transfer{Why: datapath.WhyNotSocket})
	}
	m := movers.Get()
	defer movers.Put(m)
	m.in, m.out, m.src, m.dst, m.watcher, m.limit = in, out, src.(net.Conn), dst.(net.Conn), w, limit
	m.env.Hard = limit != noLimit
	m.half = pump.Half{TCP: tcp, Enlarge: !tcpOut}
	if cfg.NoSplice {
		m.half.Refuse(datapath.WhyOff)
	}
	m.half.Preload(&m.env, read)
	atSrc, err := m.run()
	m.half.Close(&m.env)
	return m.transfer(), atSrc, err
}

// moves reports whether move does all that can be done for these two.
func moves(dst io.Writer, src io.Reader) bool {
	_, file := src.(*os.File)
	return isStream(dst) && (file || isStream(src))
}

// obeys reports whether deadlines always stop reads and writes of c.
func obeys(c net.Conn) bool {
	rc, _ := stream(c)
	return rc != nil
}

// isStream reports whether c is a stream socket.
func isStream(c any) bool {
	switch c := c.(type) {
	case *net.TCPConn:
		return true
	case *net.UnixConn:
		a := c.LocalAddr()
		return a != nil && a.Network() == "unix"
	}
	return false
}

// stream returns the raw connection of a stream socket, or nil for anything else.
func stream(c any) (rc syscall.RawConn, tcp bool) {
	if isStream(c) {
		rc, _ = c.(syscall.Conn).SyscallConn()
		_, tcp = c.(*net.TCPConn)
	}
	return rc, tcp
}

// mover waits on Go's netpoller for a pump's half.
//
// A turn uses both sockets, so it runs inside raw calls of both, which keep the descriptors
// open. A mover that waits for the source holds the source's read lock, and one that waits
// for the destination holds its write lock, but never both.
type mover struct {
	half     pump.Half
	env      pump.Env
	in, out  syscall.RawConn
	src, dst net.Conn
	watcher  *watcher
	limit    int64
	fd       int // the source, during a turn
	state    pump.State
	outErr   error

	// bound once, so that a call allocates no closure
	onReadable, onTurn, onWritable func(fd uintptr) bool
	onFull                         func(fd uintptr)
}

var movers = pool.Pool[*mover]{
	New: func() *mover {
		m := &mover{env: pump.Env{Kernel: sys.Linux{}, Pipes: shared(), Buffers: &buffers, Shared: true}}
		m.onReadable, m.onTurn, m.onWritable, m.onFull = m.readable, m.turn, m.writable, m.full
		return m
	},
	Reset: func(m *mover) bool {
		m.in, m.out, m.src, m.dst, m.watcher, m.outErr = nil, nil, nil, nil, nil, nil
		return true
	},
}

func (m *mover) run() (atSrc bool, err error) {
	for {
		if m.half.Held() > 0 {
			if err := m.out.Write(m.onWritable); err != nil {
				return false, opError("write", m.dst, err)
			}
			if m.state == pump.Failed {
				return false, m.failure()
			}
		}
		if m.half.In >= m.limit {
			return true, nil
		}
		if err := m.in.Read(m.onReadable); err != nil {
			return true, opError("read", m.src, err)
		}
		if m.outErr != nil {
			return false, opError("write", m.dst, m.outErr)
		}
		switch m.state {
		case pump.End:
			return true, nil
		case pump.Failed:
			return m.half.AtSrc, m.failure()
		}
	}
}

// readable is called with the source's descriptor. It returns false to wait for it.
func (m *mover) readable(fd uintptr) bool {
	m.fd = int(fd)
	m.outErr = m.out.Write(m.onTurn)
	return m.outErr != nil || m.state != pump.WantRead
}

// turn is called with the destination's descriptor, while fd is the source's.
func (m *mover) turn(fd uintptr) bool {
	m.begin()
	m.state = m.half.Turn(&m.env, m.fd, int(fd), int(min(m.limit-m.half.In, turnBudget)))
	m.end()
	return true
}

// writable is called with the destination's descriptor. It returns false to wait for it.
func (m *mover) writable(fd uintptr) bool {
	m.begin()
	sys.SetNonblock(int(fd)) // it may have been made blocking meanwhile
	m.state = m.half.Flush(&m.env, int(fd))
	if m.state == pump.WantWrite {
		m.in.Control(m.onFull)
	}
	m.end()
	return m.state != pump.WantWrite
}

// full is called with the source's descriptor while the destination accepts nothing.
func (m *mover) full(fd uintptr) {
	sys.SetNonblock(int(fd))
	m.half.Ahead(&m.env, int(fd))
}

// begin gets the scratch buffer, which is only needed for one turn, so that a mover that
// waits holds no memory.
func (m *mover) begin() {
	m.env.Scratch = buffers.Get(pump.ScratchSize)
	m.watcher.writes.Add(1)
}

func (m *mover) end() {
	buffers.Put(m.env.Scratch)
	m.env.Scratch = nil
	if m.watcher.gauge != nil {
		m.watcher.tell(m.transfer())
	}
	if m.state != pump.Failed {
		m.watcher.writes.Add(1)
	}
}

func (m *mover) transfer() Transfer {
	t := Transfer{Read: m.half.In, Written: m.half.Out, Spliced: m.half.Spliced}
	t.Path, t.Why = m.half.Path()
	return t
}

// failure returns a system call's error in the form of package net.
func (m *mover) failure() error {
	op, call, c := "write", "send", m.dst
	if m.half.AtSrc {
		op, call, c = "read", "recv", m.src
	}
	return opError(op, c, os.NewSyscallError(call, m.half.Err))
}

// opError returns err as Read or Write of c would: a raw connection has names of its own for these.
func opError(op string, c net.Conn, err error) error {
	if raw, ok := err.(*net.OpError); ok {
		err = raw.Err
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
