package tlsconn

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// Computing is where handshakes compute.
type Computing struct {
	// Limit bounds by its capacity how many do at the same time.
	Limit chan struct{}
	// Go runs a handshake, which calls pause again and again while it waits. If Go is nil, as it is but in simulations, the handshake has a
	// goroutine of its own, which waits.
	Go func(handshake func(pause func()))
}

// Start begins the handshake on a goroutine of its own. Whenever the handshake needs more bytes than it
// was fed, yield is called there, and once more with over when the handshake is over; Err is then nil, or why
// it failed. From yield on the connection is the caller's, who must call Resume or Abort unless the handshake
// is over.
func (c *Conn) Start(on *Computing, yield func(over bool)) {
	c.handshaking, c.limit, c.yield = true, on.Limit, yield
	c.resume = make(chan struct{}, 1)
	handshake := func(pause func()) {
		c.pause = pause
		c.compute()
		err := c.tls.HandshakeContext(context.Background())
		<-c.limit
		c.handshaking = false
		switch {
		case err == nil:
		case c.aborted:
			c.Err = errAborted
		case c.errno != 0:
			c.Err = c.errno
		case c.ended:
			c.Err = errEarly
		default:
			c.Err = err
		}
		c.limit, c.yield, c.resume, c.pause = nil, nil, nil, nil
		yield(true)
	}
	if on.Go != nil {
		on.Go(handshake)
	} else {
		go handshake(nil)
	}
}

// compute waits until the handshake may compute, and lets event loops go first that have something to do: otherwise
// handshakes that follow each other keep a CPU from them until the scheduler takes it away, after 10 ms.
func (c *Conn) compute() {
	c.limit <- struct{}{}
	runtime.Gosched()
}

// wait gives the connection to the caller of Start until there are more bytes.
func (c *Conn) wait() error {
	for {
		switch {
		case c.aborted:
			return errAborted
		case len(c.in) > 0:
			return nil
		case c.errno != 0:
			return c.errno
		case c.ended:
			return errEarly
		}
		resume, pause := c.resume, c.pause
		<-c.limit
		c.yield(false)
		for pause != nil && len(resume) == 0 {
			pause()
		}
		<-resume
		c.compute()
	}
}

// Feed gives the handshake bytes that were received. Those that it does not need are read by Recv.
func (c *Conn) Feed(p []byte) {
	c.Received += int64(len(p))
	c.in = append(slices.Clip(c.in), p...)
}

// Prepend puts p before the handshake. It is not part of the connection.
func (c *Conn) Prepend(p []byte) { c.out = slices.Concat(p, c.out) }

// Exchange sends what the handshake has to send, and receives what it needs. EAGAIN says that it must be
// called again when the socket is readable or writable, or soon if More reports true; 0 that Resume can be called,
// even if the connection has ended or failed. The handshake is not over. odd says that the socket is one of TCP and
// has hung up, or has urgent data.
func (c *Conn) Exchange(env *Env, fd int, odd bool) sys.Errno {
	env.scratch()
	c.env, c.fd, c.more = env, fd, false
	defer func() { c.env = nil }()
	if e := c.flush(); e != 0 {
		if e != sys.EAGAIN {
			c.errno = e
			return 0
		}
		return e
	}
	c.out = nil
	for {
		n, e := env.Kernel.Recv(fd, env.in)
		switch {
		case e == sys.EINTR:
			continue
		case e == sys.EAGAIN:
			c.more = odd && disturbed(env, fd)
			return e
		case e != 0:
			c.errno = e
		case n == 0:
			c.ended = true
		default:
			c.Feed(env.in[:n])
		}
		return 0
	}
}

// Resume lets the handshake go on.
func (c *Conn) Resume() { c.resume <- struct{}{} }

// Abort ends a handshake that waits; yield is called with over.
func (c *Conn) Abort() {
	c.aborted = true
	c.resume <- struct{}{}
}

// Over reports whether the handshake is over. It must not be called between Resume and yield.
func (c *Conn) Over() bool { return !c.handshaking }

// Gone reports whether a handshake failed because the peer has ended or reset the connection.
func Gone(err error) bool {
	_, reset := errors.AsType[sys.Errno](err)
	return err == errEarly || reset
}
