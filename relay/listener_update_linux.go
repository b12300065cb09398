package relay

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// Update gives the listener another configuration. It applies to flows that begin from
// now on; others keep the one that they began with. Options of the listener's sockets
// are changed where they differ. An error names an option that cannot be changed:
// MPTCP, Interface and Transparent never can, and RecvBuffer, SendBuffer, Congestion,
// KeepAliveInterval and KeepAliveCount cannot be set back to the kernel's defaults.
// After an error the listener is as it was before. Update returns [net.ErrClosed] if
// the listener is closed or the engine drains.
func (l *Listener) Update(cfg ListenConfig) error {
	// Under the lock the listener cannot be closed, and its sockets stay.
	e := l.engine
	if e == nil { // the zero Listener
		return net.ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, open := e.listeners[l]; !open {
		return net.ErrClosed
	}
	old := l.cfg.Load()
	next, err := complete(cfg)
	if err != nil {
		return err
	}
	err = l.unchangeable(next, old)
	if err == nil {
		if err = l.change(next, old); err != nil {
			l.change(old, next)
		}
	}
	if err != nil {
		return fmt.Errorf("relay: update %s: %w", l.addr, err)
	}
	l.cfg.Store(next)
	if l.paused && !next.Paused && !e.awaitsRestore {
		l.paused = false
		l.start()
	}
	return nil
}

// unchangeable finds a change that the sockets cannot make.
func (l *Listener) unchangeable(next, old *ListenConfig) error {
	if next.Paused && !l.paused {
		return errors.New("a listener that accepts cannot be paused: Paused is for the start")
	}
	return l.unchangeableOption(&next.Socket, &old.Socket)
}

func (l *Listener) unchangeableOption(o, was *SocketOptions) error {
	for i := range socketOptions {
		opt := &socketOptions[i]
		if opt.unchangeable != nil && slices.Contains(opt.on, l.addr.Network) && opt.differs(o, was) && opt.unchangeable(o, was) {
			return fmt.Errorf("%s cannot be changed so while it listens", opt.name)
		}
	}
	return nil
}

// change sets what differs between two configurations on the sockets.
func (l *Listener) change(next, old *ListenConfig) error {
	if l.path != "" && next.Mode != old.Mode && next.Mode != 0 {
		if err := sys.Chmod(l.path, next.Mode); err != nil {
			return err
		}
	}
	for _, p := range l.sockets() {
		if err := l.setOptions(p.socket().fd, &next.Socket, &old.Socket); err != nil {
			return err
		}
		if err := p.change(next, old); err != nil {
			return err
		}
	}
	return nil
}
