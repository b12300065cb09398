package simkernel

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Unix datagram sockets: unix(7), net/unix/af_unix.c. There are no folders: a path is the name of a socket, and nobody has it any more
// when the socket is closed, as if it was removed.

// full is unix_recvq_full, of a socket that another one sends to.
func (g *gram) full(sender *gram) bool {
	return g != sender && g.peer != sender && len(g.queue) > g.w.GramQueue
}

// wakeLater has a socket woken when there is room in the queue.
func (g *gram) wakeLater(sender *gram) {
	if !slices.Contains(g.wakesWith, sender) {
		g.wakesWith = append(g.wakesWith, sender)
	}
}

// bindUnix is unix_bind and unix_autobind.
func (g *gram) bindUnix(name string) sys.Errno {
	if name == "" {
		if g.name != "" {
			return 0
		}
		for g.w.unixNames[name] != nil || name == "" {
			g.w.autobound++
			name = fmt.Sprintf("\x00%05x", g.w.autobound)
		}
	}
	switch {
	case g.name != "":
		return sys.EINVAL
	case g.w.unixNames[name] != nil:
		return sys.EADDRINUSE
	}
	g.name = name
	g.w.unixNames[name] = g
	return 0
}

// lookUp is unix_find_other.
func (g *gram) lookUp(name string) (*gram, sys.Errno) {
	if other := g.w.unixNames[name]; other != nil {
		return other, 0
	}
	if name == "" || name[0] == 0 {
		return nil, sys.ECONNREFUSED
	}
	return nil, sys.ENOENT
}

func (g *gram) mayReach(other *gram) bool { return other.peer == nil || other.peer == g }

// connectUnix is unix_dgram_connect.
func (g *gram) connectUnix(name string) sys.Errno {
	other, e := g.lookUp(name)
	if e != 0 {
		return e
	}
	if !g.mayReach(other) {
		return sys.EPERM
	}
	old := g.peer
	if g.peer = other; old != nil {
		g.wake(sys.Out) // unix_dgram_peer_wake_disconnect_wakeup
	}
	if old != nil && old != other {
		g.disconnected(old)
	}
	return 0
}

// disconnected is unix_dgram_disconnected.
func (g *gram) disconnected(other *gram) {
	if len(g.queue) == 0 {
		return
	}
	for len(g.queue) > 0 {
		g.w.lost(g.first())
	}
	if !other.dead && other.peer == g {
		other.fail(sys.ECONNRESET)
	}
}

// sendUnix is unix_dgram_sendmsg; an empty name is the socket that it is connected to. The memory is taken before anything is looked up,
// and given back if that fails.
func (g *gram) sendUnix(b []byte, name string) sys.Errno {
	if len(b) > g.sendBuffer-32 {
		return sys.EMSGSIZE
	}
	if e := g.takeError(); e != 0 {
		return e
	}
	if g.shutdown {
		return sys.EPIPE
	}
	if g.unsent >= g.sendBuffer {
		g.blocked = true
		return sys.EAGAIN
	}
	e := g.giveUnix(b, name)
	if e != 0 {
		g.freed(0)
	}
	return e
}

// giveUnix puts a datagram into another socket's queue.
func (g *gram) giveUnix(b []byte, name string) sys.Errno {
	other, e := g.peer, sys.Errno(0)
	if name != "" {
		if other, e = g.lookUp(name); e != 0 {
			return e
		}
	}
	switch {
	case other == nil:
		return syscall.ENOTCONN
	case other.dead: // it was connected to it
		g.peer = nil
		g.disconnected(other)
		return sys.ECONNREFUSED
	case !g.mayReach(other):
		return sys.EPERM
	case other.shutdown:
		return sys.EPIPE
	case other.full(g):
		if g.peer == other {
			other.wakeLater(g)
		}
		return sys.EAGAIN
	}
	p := &packet{sender: g, name: g.name, b: b}
	g.unsent += p.memory()
	other.queue = append(other.queue, p)
	other.received += p.memory()
	other.wake(sys.In)
	return 0
}

// shutdownUnix is unix_shutdown of both directions.
func (g *gram) shutdownUnix() {
	g.shutdown = true
	g.wake(wakeAll)
}

func (g *gram) closeUnix() {
	g.shutdown = true
	if g.name != "" {
		delete(g.w.unixNames, g.name)
	}
	for _, other := range g.wakesWith {
		other.wake(sys.Out)
	}
	g.wakesWith, g.peer = nil, nil
	for _, p := range g.queue {
		p.sender.freed(p.memory())
	}
}
