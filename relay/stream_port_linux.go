package relay

import (
	"sync"
	"sync/atomic"
	"time"
)

// streamPort is a loop's view of a socket of a stream listener, which is the loop's own, or
// shared by all loops.
//
//	watched ─▶ closing ─▶ closed
//	 │  ▲
//	 ▼  │
//	paused
type streamPort struct {
	streams  *streams
	listener *Listener
	*listenSocket
	shared *sharedPorts    // nil: the socket is the loop's own
	number int             // of the loop's sources, while it is not closing
	called atomic.Bool     // the loop has been asked to accept, and has not begun to
	until  time.Duration   // closing: when it is closed even if clients still wait
	closed *sync.WaitGroup // closing: done when it is closed
}

// sharedPorts are the ports of a socket from which all loops accept.
type sharedPorts struct {
	ports []*streamPort // by loop
	open  atomic.Int32  // ports that the loops have not let go of; the last one closes the socket
}

func (p *streamPort) loop() int { return p.streams.loop.Index }

func (p *streamPort) socket() *listenSocket { return p.listenSocket }
