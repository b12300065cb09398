package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

var errNoSource = errors.New("relay: no source address has the upstream's address family")

// socketKind is what the options of a socket depend on.
type socketKind struct {
	network Network
	family  sys.Family
	dial    bool // towards an upstream; else a listener's
}

// socketOption is one of SocketOptions. differs reports whether two of those differ in it.
type socketOption struct {
	name    string    // as the manual pages have it
	needs   string    // the capability that the kernel asks for, if it asks for one
	on      []Network // where it exists
	differs func(o, was *SocketOptions) bool
	set     func(k sys.Kernel, fd int, kind socketKind, o *SocketOptions) sys.Errno
	// unchangeable, if not nil, reports a change that a listening socket cannot make.
	unchangeable func(o, was *SocketOptions) bool
}

var (
	streamsOnly = []Network{TCP, Unix}
	tcpOnly     = []Network{TCP}
	ipOnly      = []Network{TCP, UDP}
)

func always(_, _ *SocketOptions) bool { return true }

var transparent = socketOption{
	name: "IP_TRANSPARENT", needs: "CAP_NET_ADMIN", on: ipOnly, unchangeable: always,
	differs: func(o, was *SocketOptions) bool { return o.Transparent != was.Transparent },
	set: func(kernel sys.Kernel, fd int, k socketKind, o *SocketOptions) sys.Errno {
		return sys.SetTransparent(kernel, fd, k.family, o.Transparent)
	},
}

// socketOptions are set in this order.
var socketOptions = [...]socketOption{
	{
		name: "SO_RCVBUF", on: streamsOnly,
		differs: func(o, was *SocketOptions) bool { return o.RecvBuffer != was.RecvBuffer },
		set: func(k sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetBuffers(k, fd, o.RecvBuffer, 0)
		},
		unchangeable: func(o, _ *SocketOptions) bool { return o.RecvBuffer == 0 },
	}, {
		name: "SO_SNDBUF", on: streamsOnly,
		differs: func(o, was *SocketOptions) bool { return o.SendBuffer != was.SendBuffer },
		set: func(k sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetBuffers(k, fd, 0, o.SendBuffer)
		},
		unchangeable: func(o, _ *SocketOptions) bool { return o.SendBuffer == 0 },
	}, {
		name: "TCP_NODELAY", on: tcpOnly,
		differs: func(o, was *SocketOptions) bool { return o.Nagle != was.Nagle },
		set: func(k sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetNoDelay(k, fd, !o.Nagle)
		},
	}, {
		name: "SO_KEEPALIVE", on: tcpOnly,
		differs: func(o, was *SocketOptions) bool {
			return o.KeepAlive != was.KeepAlive || o.KeepAliveInterval != was.KeepAliveInterval || o.KeepAliveCount != was.KeepAliveCount
		},
		set: func(k sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetKeepAlive(k, fd, o.KeepAlive, o.KeepAliveInterval, o.KeepAliveCount)
		},
		unchangeable: func(o, was *SocketOptions) bool {
			return o.KeepAliveInterval == 0 && was.KeepAliveInterval > 0 || o.KeepAliveCount == 0 && was.KeepAliveCount > 0
		},
	}, {
		name: "TCP_USER_TIMEOUT", on: tcpOnly,
		differs: func(o, was *SocketOptions) bool { return o.UserTimeout != was.UserTimeout },
		set: func(k sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetUserTimeout(k, fd, o.UserTimeout)
		},
	}, {
		name: "TCP_CONGESTION", needs: "CAP_NET_ADMIN", on: tcpOnly,
		differs: func(o, was *SocketOptions) bool { return o.Congestion != was.Congestion },
		set: func(_ sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetCongestion(fd, o.Congestion)
		},
		unchangeable: func(o, _ *SocketOptions) bool { return o.Congestion == "" },
	}, {
		name: "TCP_FASTOPEN", on: tcpOnly,
		differs: func(o, was *SocketOptions) bool { return o.FastOpen != was.FastOpen },
		set: func(_ sys.Kernel, fd int, k socketKind, o *SocketOptions) sys.Errno {
			if k.dial {
				return sys.SetFastOpenConnect(fd, o.FastOpen > 0)
			}
			return sys.SetFastOpen(fd, o.FastOpen)
		},
	}, {
		name: "IP_TOS", on: ipOnly,
		differs: func(o, was *SocketOptions) bool { return o.DSCP != was.DSCP },
		set: func(kernel sys.Kernel, fd int, k socketKind, o *SocketOptions) sys.Errno {
			return sys.SetDSCP(kernel, fd, k.family, o.DSCP)
		},
	}, {
		name: "SO_MARK", needs: "CAP_NET_ADMIN", on: ipOnly,
		differs: func(o, was *SocketOptions) bool { return o.Mark != was.Mark },
		set: func(kernel sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetMark(kernel, fd, o.Mark)
		},
	}, {
		name: "SO_BINDTODEVICE", needs: "CAP_NET_RAW", on: ipOnly, unchangeable: always,
		differs: func(o, was *SocketOptions) bool { return o.Interface != was.Interface },
		set: func(_ sys.Kernel, fd int, _ socketKind, o *SocketOptions) sys.Errno {
			return sys.SetInterface(fd, o.Interface)
		},
	}, transparent, {
		name: "IPPROTO_MPTCP", on: tcpOnly, unchangeable: always, // the socket is made so
		differs: func(o, was *SocketOptions) bool { return o.MPTCP != was.MPTCP },
		set:     func(sys.Kernel, int, socketKind, *SocketOptions) sys.Errno { return 0 },
	},
}

// fresh is what a new socket has.
var fresh = SocketOptions{Nagle: true}

// optionError is the failure to set one option of a socket.
type optionError struct {
	option *socketOption
	errno  sys.Errno
}

func (e *optionError) Unwrap() error { return e.errno }

func (e *optionError) Error() string {
	s := "set " + e.option.name + ": " + e.errno.Error()
	if e.errno == sys.EPERM && e.option.needs != "" {
		s += "; " + e.option.needs + " is needed"
	}
	return s
}

// setOptions sets what differs from what the socket had. What a listener has,
// its accepted sockets inherit, so that a client costs no call.
func setOptions(kernel sys.Kernel, fd int, k socketKind, o, was *SocketOptions) error {
	for i := range socketOptions {
		opt := &socketOptions[i]
		if !opt.differs(o, was) || !slices.Contains(opt.on, k.network) {
			continue
		}
		if e := opt.set(kernel, fd, k, o); e != 0 && !((e == sys.EOPNOTSUPP || e == sys.ENOPROTOOPT) && sys.Multipath(fd)) {
			return &optionError{opt, e}
		}
	}
	return nil
}

// dialConfig is what the flow's next attempt goes by.
func (f *Flow) dialConfig() *DialConfig {
	if f.dialing != nil {
		return f.dialing
	}
	return f.cfg.Dial
}

// prepareSocket sets the options of a socket towards f's upstream, and binds it where
// d names a source.
func (t *tenant) prepareSocket(fd int, k socketKind, d *DialConfig, f *Flow) error {
	if err := setOptions(t.shared.kernel, fd, k, &d.Socket, &fresh); err != nil {
		return err
	}
	if t.keep != nil && lingerUnsettled && k.network == TCP {
		t.shared.kernel.CloseResets(fd, true) // until the flow ends well
	}
	if k.family == sys.Unix || len(d.Source) == 0 && !d.FromClient {
		return nil
	}
	source, err := t.source(d, f)
	if err != nil {
		return err
	}
	if k.family == sys.IPv6 { // of a socket for 4-in-6, too
		source = netip.AddrFrom16(source.As16()).WithZone(source.Zone())
	}
	var sa sys.Sockaddr
	if err := sa.SetAddrPort(netip.AddrPortFrom(source, 0)); err != nil {
		return err
	}
	if d.FromClient {
		if e := sys.SetTransparent(t.shared.kernel, fd, k.family, true); e != 0 {
			return &optionError{&transparent, e}
		}
	}
	if k.network == TCP {
		sys.SetBindNoPort(t.shared.kernel, fd) // without it the ports run out earlier
	}
	if e := t.shared.kernel.Bind(fd, &sa); e != 0 {
		return fmt.Errorf("bind to %s: %w", source, e)
	}
	return nil
}

// source is the address to connect from.
func (t *tenant) source(d *DialConfig, f *Flow) (netip.Addr, error) {
	four := f.Upstream().AddrPort.Addr().Unmap().Is4()
	if d.FromClient {
		if a := f.Client().AddrPort.Addr().Unmap(); a.IsValid() && a.Is4() == four {
			return a, nil
		}
		return netip.Addr{}, errNoSource
	}
	for range d.Source {
		t.sources++
		if a := d.Source[t.sources%len(d.Source)].Unmap(); a.Is4() == four {
			return a, nil
		}
	}
	return netip.Addr{}, errNoSource
}

// scarce reports whether descriptors or ports have run out. For ports the error is
// EAGAIN where connecting chooses one (ip(7)), and EADDRINUSE where a source
// address is bound.
func scarce(err error) bool {
	e, ok := errors.AsType[sys.Errno](err)
	return ok && (e == sys.EMFILE || e == sys.ENFILE || e == sys.EAGAIN || e == sys.EADDRINUSE)
}
