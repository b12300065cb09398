package relay

import (
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// blocked reports whether a flow holds bytes that its reader does not take, or that nobody could be
// connected for yet; and whether the flow relays.
func (s *streams) blocked(f *streamFlow) (blocked, relaying bool) {
	if f.state != streamRelaying {
		return f.early != nil && f.early.held != nil, false
	}
	for h := range f.half {
		if f.wait[h] == pump.WantWrite {
			blocked = true
		}
	}
	return blocked, !f.inReady
}

// sentLately reports whether the kernel has sent something within quiet. What the loop has put into a large buffer
// leaves it long afterwards if its reader is slow, and nothing tells the loop before there is much room again.
func (s *streams) sentLately(f *streamFlow, quiet time.Duration) bool {
	for side, fd := range f.fd {
		if fd >= 0 && f.tcp[side] && s.env.Kernel.TCPInfo(int(fd), &s.info) == 0 && time.Duration(s.info.Last_data_sent)*time.Millisecond < quiet {
			return true
		}
	}
	return false
}

// memory returns the bytes that a flow holds in user space, in a pipe, and in the buffers of its sockets.
func (s *streams) memory(f *streamFlow) (user, pipes, sockets int64) {
	for h := range f.half {
		u, p := f.half[h].Memory()
		user += int64(u)
		pipes += int64(p)
	}
	if f.early != nil {
		user += int64(cap(f.early.held))
	}
	user += f.tls.memory()
	for _, fd := range f.fd {
		if fd >= 0 {
			sockets += sys.SocketMemory(s.shared.kernel, int(fd))
		}
	}
	return user, pipes, sockets
}

// trim gives back the memory of held bytes that is not in use.
func (s *streams) trim() {
	if s.keep != nil {
		a := s.keep.ledger.Arena()
		a.Trim()
		a.Trim() // the first one notes that nothing of the rest was needed meanwhile
	}
}
