package simkernel

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
)

// scripts do what random calls do not reach. Each returns what it has seen, which must be the same on both kernels. a and b are the
// ends of a connection.
var scripts = map[string]func(t *testing.T, r *kernelRun, a, b int) string{
	"a send that is cut short": func(t *testing.T, r *kernelRun, a, b int) string {
		r.wait()
		n := r.sendMost(t, a)
		before := r.wait()
		r.read(t, b, n)
		var after string
		testwait.Until(t, "the sender is told that there is room", func() bool { after = r.wait(); return after != "errno 0" })
		return before + ", then " + after
	},
	"an orphan that has more to send": func(t *testing.T, r *kernelRun, a, b int) string {
		n := r.sendMost(t, a)
		r.k.Close(a)
		r.ends[0].fds = nil
		r.read(t, b, n)
		testwait.Until(t, "the end arrives", func() bool { return r.k.Poll(b, sys.PollRdHup)&sys.PollRdHup != 0 })
		end, e := r.k.Recv(b, make([]byte, 10))
		_, sent := r.k.Send(b, []byte("late"))
		r.failed(t, b)
		return fmt.Sprint(end, e, sent, r.rest(b))
	},
	"a low-water mark above the buffer": func(t *testing.T, r *kernelRun, a, b int) string {
		const mark = 300_000
		e := r.k.RcvLowat(b, mark)
		r.send(t, a, 1000)
		testwait.Until(t, "a tail arrives", func() bool { n, _ := r.k.ReadQueued(b); return n == 1000 })
		below := sys.Readable(r.k, b)
		r.send(t, a, mark-1000)
		testwait.Until(t, "the mark is reached", func() bool { return sys.Readable(r.k, b) })
		return fmt.Sprint(e, below)
	},
	"a client that resets before it is accepted": func(t *testing.T, r *kernelRun, a, b int) string {
		r.dial(t, true)
		var from sys.Sockaddr
		fd, e := r.k.Accept(r.listener, &from)
		if e != 0 {
			return e.Error()
		}
		defer r.k.Close(fd)
		r.failed(t, fd)
		return fmt.Sprint(from.AddrPort().Addr(), r.k.PeerAddr(fd, &from), r.rest(fd))
	},
	"a listener that is closed while a client waits": func(t *testing.T, r *kernelRun, a, b int) string {
		fd := r.dial(t, false)
		defer r.k.Close(fd)
		r.k.Close(r.listener)
		r.failed(t, fd)
		return r.rest(fd)
	},
	"a listener that is shut down while a client waits": func(t *testing.T, r *kernelRun, a, b int) string {
		fd := r.dial(t, false)
		defer r.k.Close(fd)
		text := fmt.Sprint(r.k.ShutdownWrite(r.listener), sys.Readable(r.k, r.listener), r.k.ShutdownBoth(r.listener))
		r.failed(t, fd)
		var from sys.Sockaddr
		_, e := r.k.Accept(r.listener, &from)
		late := r.watchedSocket(t)
		refused := r.k.Connect(late, &r.at)
		r.failed(t, late)
		return text + fmt.Sprint(e, r.rest(r.listener), r.rest(fd), refused, r.rest(late), r.k.ShutdownBoth(r.listener))
	},
	"an urgent byte in the middle": func(t *testing.T, r *kernelRun, a, b int) string {
		r.send(t, a, 10)
		text := r.sendUrgent(a, 1).Error()
		r.send(t, a, 20)
		r.arrived(t, a)
		return text + r.events() + r.readAll(b)
	},
	"an urgent byte in front of the end": func(t *testing.T, r *kernelRun, a, b int) string {
		r.send(t, a, 10)
		r.sendUrgent(a, 1)
		r.k.ShutdownWrite(a)
		testwait.Until(t, "the end arrives", func() bool { return r.k.Poll(b, sys.PollRdHup)&sys.PollRdHup != 0 })
		return r.events() + r.readAll(b)
	},
	"an urgent byte alone": func(t *testing.T, r *kernelRun, a, b int) string {
		r.sendUrgent(a, 1)
		testwait.Until(t, "it arrives", func() bool { return r.k.Poll(b, sys.PollPri)&sys.PollPri != 0 })
		return r.events() + r.readAll(b)
	},
	"two urgent bytes": func(t *testing.T, r *kernelRun, a, b int) string {
		r.send(t, a, 10)
		r.sendUrgent(a, 1)
		r.send(t, a, 10)
		r.sendUrgent(a, 2)
		r.send(t, a, 10)
		r.arrived(t, a)
		return r.events() + r.readAll(b)
	},
	"a second urgent byte when the first is next": func(t *testing.T, r *kernelRun, a, b int) string {
		r.send(t, a, 10)
		r.sendUrgent(a, 1)
		r.send(t, a, 10)
		r.arrived(t, a)
		r.read(t, b, 10)
		r.sendUrgent(a, 2)
		r.send(t, a, 5)
		r.arrived(t, a)
		return r.readAll(b)
	},
	"a reset behind an end": func(t *testing.T, r *kernelRun, a, b int) string {
		r.wait()
		r.k.ShutdownWrite(a)
		testwait.Until(t, "the end arrives", func() bool { return r.k.Poll(b, sys.PollRdHup)&sys.PollRdHup != 0 })
		end := r.wait()
		r.send(t, b, 10)
		r.k.CloseResets(a, true)
		r.k.Close(a)
		r.ends[0].fds = nil
		r.failed(t, b)
		return end + ", then " + r.wait() + ", " + r.rest(b)
	},
	"the watched descriptor is closed, and the socket has another": func(t *testing.T, r *kernelRun, a, b int) string {
		other, e := r.k.Dup(a)
		r.wait()
		closed, del, mod := r.k.Close(a), r.k.EpollDel(r.epoll, a), r.k.EpollMod(r.epoll, a, watched, 0)
		r.send(t, b, 10)
		testwait.Until(t, "bytes arrive", func() bool { return sys.Readable(r.k, other) })
		open := r.wait()
		r.send(t, b, 10)
		r.k.Close(other)
		r.ends[0].fds = nil
		r.failed(t, b)
		return fmt.Sprint(e, closed, del, mod, open, ", then ", r.wait())
	},
	"what accepted sockets inherit": func(t *testing.T, r *kernelRun, _, _ int) string {
		const tcp, noDelay = 6, 1
		set, lowat := sys.SetNoDelay(r.k, r.listener, true), r.k.RcvLowat(r.listener, 100)
		r.connect(t)
		a, b := r.ends[2].fds[0], r.ends[3].fds[0]
		value, e := r.k.Option(b, tcp, noDelay)
		r.send(t, a, 10)
		testwait.Until(t, "bytes arrive", func() bool { n, _ := r.k.ReadQueued(b); return n == 10 })
		return fmt.Sprint(set, lowat, value, e, sys.Readable(r.k, b))
	},
}

// connectScripts are those of connects that wait, or fail.
var connectScripts = map[string]func(t *testing.T, r *kernelRun, a, b int) string{
	"nobody listens": func(t *testing.T, r *kernelRun, a, b int) string {
		r.k.Close(r.listener)
		fd := r.watchedSocket(t)
		e := r.k.Connect(fd, &r.at)
		r.failed(t, fd)
		return fmt.Sprint(e, r.wait(), r.rest(fd))
	},
	"a queue of clients that is full": func(t *testing.T, r *kernelRun, a, b int) string {
		text := r.k.Listen(r.listener, 1).Error()
		var last int
		for range 3 {
			last = r.watchedSocket(t)
			text += ", " + r.k.Connect(last, &r.at).Error()
		}
		_, received := r.k.Recv(last, make([]byte, 1))
		_, sent := r.k.Send(last, []byte("x"))
		text += fmt.Sprintf(", poll %#x, receive %v, send %v, shutdown %v, again %v, error %v", r.k.Poll(last, sys.PollIn|sys.PollOut), received, sent,
			r.k.ShutdownWrite(last), r.k.Connect(last, &r.at), sys.SockError(r.k, last))
		r.wait()
		var from sys.Sockaddr
		fd, e := r.k.Accept(r.listener, &from)
		r.must(t, "accept", e)
		r.everything = append(r.everything, fd)
		if p, ok := r.k.(*Process); ok {
			p.w.Answer(0, 0)
		}
		var events string
		testwait.Until(t, "the client is connected", func() bool { events = r.wait(); return events != "errno 0" }) // its SYN is sent again after a second
		return text + ", then " + events
	},
	"a socket that waits is closed": func(t *testing.T, r *kernelRun, a, b int) string {
		r.k.Listen(r.listener, 1)
		var last int
		for range 3 {
			last = r.socket(t)
			r.k.Connect(last, &r.at)
		}
		text := fmt.Sprint(r.k.Disconnect(last), r.rest(last))
		return text
	},
}

// watchedSocket makes a socket, which is watched and is closed with the others.
func (r *kernelRun) watchedSocket(t *testing.T) int {
	fd := r.socket(t)
	r.must(t, "watch", r.k.EpollAdd(r.epoll, fd, watched, 99))
	return fd
}

// unixScripts are those of Unix sockets.
var unixScripts = map[string]func(t *testing.T, r *kernelRun, a, b int) string{
	"a full buffer": func(t *testing.T, r *kernelRun, a, b int) string {
		r.wait()
		n := r.sendMost(t, a)
		_, more := r.k.Send(a, []byte("x"))
		before := r.wait()
		r.read(t, b, n)
		return fmt.Sprint(more, before, ", then ", r.wait())
	},
	"a larger buffer while it is full": func(t *testing.T, r *kernelRun, a, b int) string {
		r.sendMost(t, a)
		sys.EnlargeSendBuffer(r.k, a)
		_, more := r.k.Send(a, []byte("x"))
		return fmt.Sprint(more)
	},
	"a client that closes before it is accepted": func(t *testing.T, r *kernelRun, a, b int) string {
		fd := r.begin(t)
		r.send(t, fd, 3)
		r.k.Close(fd)
		var from sys.Sockaddr
		fd, e := r.k.Accept(r.listener, &from)
		if e != 0 {
			return e.Error()
		}
		defer r.k.Close(fd)
		return fmt.Sprint(from.Family(), from.UnixPath(), r.k.PeerAddr(fd, &from), from.Family(), from.UnixPath(), r.rest(fd))
	},
	"a listener that is closed while a client waits": func(t *testing.T, r *kernelRun, a, b int) string {
		fd := r.begin(t)
		defer r.k.Close(fd)
		r.k.Close(r.listener)
		return fmt.Sprint(r.rest(fd), r.k.Connect(r.socket(t), &r.at))
	},
	"a listener that is shut down while a client waits": func(t *testing.T, r *kernelRun, a, b int) string {
		first, second := r.begin(t), r.begin(t)
		r.everything = append(r.everything, first, second)
		text := r.k.ShutdownBoth(r.listener).Error()
		var from sys.Sockaddr
		fd, e := r.k.Accept(r.listener, &from)
		if e == 0 {
			r.everything = append(r.everything, fd)
		}
		_, none := 0, sys.Errno(0)
		if e == 0 {
			_, _ = r.k.Accept(r.listener, &from)
			_, none = r.k.Accept(r.listener, &from)
		}
		return text + fmt.Sprint(e, none, r.k.Connect(r.socket(t), &r.at), r.rest(second), r.k.Poll(r.listener, sys.PollIn|sys.PollOut|sys.PollRdHup))
	},
	"a queue of clients that is full": func(t *testing.T, r *kernelRun, a, b int) string {
		text := r.k.Listen(r.listener, 2).Error()
		for range 5 {
			text += ", " + r.k.Connect(r.socket(t), &r.at).Error()
		}
		fd, e := r.k.Accept(r.listener, &r.at)
		if e == 0 {
			r.everything = append(r.everything, fd)
		}
		return text + fmt.Sprintf(", accept %v, poll %#x", e, r.k.Poll(r.listener, sys.PollIn|sys.PollOut|sys.PollRdHup))
	},
	"sockets without a connection": func(t *testing.T, r *kernelRun, a, b int) string {
		fd := r.socket(t)
		var sa sys.Sockaddr
		return fmt.Sprint(r.rest(fd), r.k.ShutdownWrite(fd), r.k.PeerAddr(fd, &sa), r.rest(r.listener), r.k.Connect(a, &r.at))
	},
	"a pair, one of which gets a name": func(t *testing.T, r *kernelRun, a, b int) string {
		x, y, e := r.k.StreamPair()
		r.must(t, "pair", e)
		var sa, name sys.Sockaddr
		text := fmt.Sprint(r.k.PeerAddr(x, &sa), sa.UnixPath(), r.rest(x))
		r.must(t, "name", name.SetUnix(fmt.Sprintf("@simkernel-%d-%d", os.Getpid(), paths.Add(1))))
		named := func() string { e := r.k.PeerAddr(x, &sa); return fmt.Sprint(e, sa.UnixPath() == name.UnixPath()) }
		text += fmt.Sprint(r.k.Bind(y, &name), named(), r.k.Bind(y, &name), r.k.Bind(x, &name), ", listens ", r.k.Bind(a, &r.at))
		r.send(t, y, 3)
		r.k.ShutdownWrite(y)
		text += fmt.Sprint(named(), r.rest(x))
		r.k.Close(y)
		text += fmt.Sprint(named(), r.rest(x))
		r.k.Close(x)
		return text
	},
	"bytes that nobody reads": func(t *testing.T, r *kernelRun, a, b int) string {
		r.send(t, a, 10)
		r.send(t, b, 20)
		r.wait()
		r.k.Close(b)
		r.ends[1].fds = nil
		return r.wait() + ", " + r.rest(a)
	},
	"an end before bytes that nobody has read": func(t *testing.T, r *kernelRun, a, b int) string {
		r.send(t, a, 10)
		r.k.ShutdownWrite(b)
		_, late := r.k.Send(b, []byte("x"))
		r.send(t, a, 10)
		return fmt.Sprint(late, r.wait(), r.rest(b), r.rest(a))
	},
}

// arrived waits until all that a socket has sent has arrived.
func (r *kernelRun) arrived(t *testing.T, fd int) {
	t.Helper()
	testwait.Until(t, "all has arrived", func() bool { n, e := r.k.WriteQueued(fd); return n == 0 && e == 0 })
}

// events returns what epoll tells, without the order of sockets.
func (r *kernelRun) events() string { return fmt.Sprintf(" events %s", r.wait()) }

// readAll splices and receives what there is, and tells what the calls say.
func (r *kernelRun) readAll(fd int) (text string) {
	for range 4 {
		n, e := r.k.Splice(fd, r.pipe[1], 1000)
		text += fmt.Sprintf(", splice %d %v mark %v", n, e, r.k.AtMark(fd))
	}
	for range 3 {
		m, e := r.undisturbed(fd, func() (int, sys.Errno) { return r.k.Recv(fd, make([]byte, 15)) })
		c, _ := r.k.TCPCounts(fd)
		n, se := r.k.Splice(fd, r.pipe[1], 3)
		text += fmt.Sprintf(", receive %d %v, counts %+v, poll %#x, splice %d %v", m, e, c, r.k.Poll(fd, sys.PollIn|sys.PollPri|sys.PollRdHup), n, se)
	}
	return text
}

// socket makes a socket, which is closed with the others.
func (r *kernelRun) socket(t *testing.T) int {
	fd, e := r.k.Socket(r.family, false)
	r.must(t, "socket", e)
	r.everything = append(r.everything, fd)
	return fd
}

// dial connects a client that sends three bytes, and that resets its connection if resets is set.
func (r *kernelRun) dial(t *testing.T, resets bool) int {
	fd := r.begin(t)
	testwait.Until(t, "a client waits to be accepted", func() bool { return sys.Readable(r.k, r.listener) })
	r.send(t, fd, 3)
	if resets {
		r.k.CloseResets(fd, true)
		r.k.Close(fd)
	}
	return fd
}

// send sends n bytes.
func (r *kernelRun) send(t *testing.T, fd, n int) {
	t.Helper()
	testwait.Until(t, "all is sent", func() bool {
		m, e := r.k.Send(fd, make([]byte, n))
		if e != 0 && e != sys.EAGAIN {
			t.Fatalf("%T: send: %v", r.k, e)
		}
		n -= m
		return n == 0
	})
}

// sendMost sends as much as one call takes, which is less than it is given.
func (r *kernelRun) sendMost(t *testing.T, fd int) int {
	t.Helper()
	p := make([]byte, 16<<20)
	n, e := r.k.Send(fd, p)
	if e != 0 || n == len(p) {
		t.Fatalf("%T: %d bytes were sent at once: %v", r.k, n, e)
	}
	return n
}

// read reads n bytes, and no more.
func (r *kernelRun) read(t *testing.T, fd, n int) {
	t.Helper()
	p := make([]byte, 1<<20)
	testwait.Until(t, "all is received", func() bool {
		for n > 0 {
			m, e := r.k.Recv(fd, p[:min(n, len(p))])
			if e == sys.EAGAIN {
				return false
			}
			if e != 0 || m == 0 {
				t.Fatalf("%T: receive: %d, %v, %d bytes before the end", r.k, m, e, n)
			}
			n -= m
		}
		return true
	})
}

// failed waits until a socket has an error.
func (r *kernelRun) failed(t *testing.T, fd int) {
	t.Helper()
	testwait.Until(t, "a socket fails", func() bool { return sys.HasError(r.k, fd) })
}

// rest returns what a socket that has failed still says: its events, and the results of calls until they repeat.
func (r *kernelRun) rest(fd int) string {
	text := fmt.Sprintf("poll %#x", r.k.Poll(fd, sys.PollIn|sys.PollOut|sys.PollRdHup))
	for range 3 {
		n, e := r.k.Recv(fd, make([]byte, 100))
		text += fmt.Sprintf(", receive %d %v", n, e)
	}
	n, e := r.k.Send(fd, []byte("x"))
	return text + fmt.Sprintf(", send %d %v, error %v", n, e, sys.SockError(r.k, fd))
}

// TestScriptsLikeLinux runs the scripts on both kernels.
func TestScriptsLikeLinux(t *testing.T) {
	for name, script := range scripts {
		t.Run("TCP "+name, func(t *testing.T) { runScript(t, sys.IPv4, script) })
	}
	for name, script := range connectScripts {
		t.Run("connect "+name, func(t *testing.T) { runScript(t, sys.IPv4, script) })
	}
	for name, script := range unixScripts {
		t.Run("Unix "+name, func(t *testing.T) { runScript(t, sys.Unix, script) })
	}
}

func runScript(t *testing.T, family sys.Family, script func(t *testing.T, r *kernelRun, a, b int) string) {
	var seen [2]string
	for i, k := range []sys.Kernel{sys.Linux{}, New().NewProcess()} {
		r := newRun(t, k, family, 1)
		seen[i] = script(t, r, r.ends[0].fds[0], r.ends[1].fds[0])
		r.close()
	}
	if seen[0] != seen[1] {
		t.Errorf("\nLinux     %s\nsimulated %s", seen[0], seen[1])
	}
}
