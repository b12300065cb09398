package systemd

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets are the sockets passed by the service manager, by name: FileDescriptorName= of the
// socket unit, by default the unit's own name. One name may have several.
type Sockets struct {
	Streams   map[string][]net.Listener
	Datagrams map[string][]net.PacketConn
}

// Inherit takes over the sockets of LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES, and removes these
// variables. The caller must close each socket, itself or with Close. A Unix socket's path belongs
// to the manager and is not removed. If a descriptor is not a bound socket, Inherit returns an
// error and closes them all.
//
// It is called once, before the process opens anything that could get one of the numbers.
func Inherit() (*Sockets, error) {
	if _, err := Passed(os.Getenv, os.Getpid()); err != nil {
		return nil, err
	}
	return sockets(activation.Files(true))
}

// maxPassed bounds LISTEN_FDS: more descriptors than that are not passed to anybody.
const maxPassed = 1 << 16

// Passed returns how many descriptors the environment says that the service manager has passed to the process
// with the number pid, from 3 on. They need not exist.
func Passed(getenv func(string) string, pid int) (int, error) {
	if of, err := strconv.Atoi(getenv("LISTEN_PID")); err != nil || of != pid {
		return 0, nil
	}
	text := getenv("LISTEN_FDS")
	n, err := strconv.Atoi(text)
	if text == "" {
		return 0, nil
	}
	if err != nil || n < 0 || n > maxPassed {
		return 0, fmt.Errorf("LISTEN_FDS=%.80s: want the number of descriptors that were passed, 0 to %d", text, maxPassed)
	}
	return n, nil
}

func sockets(files []*os.File) (*Sockets, error) {
	s := &Sockets{Streams: make(map[string][]net.Listener), Datagrams: make(map[string][]net.PacketConn)}
	var errs []error
	for _, f := range files {
		name := f.Name()
		// Both functions duplicate the descriptor and refuse a socket of the other kind, with one exception:
		// net.FileListener accepts a Unix datagram socket.
		l, err := net.FileListener(f)
		if err == nil && l.Addr().Network() == "unixgram" {
			l.Close()
			err = errors.ErrUnsupported
		}
		if err == nil {
			s.Streams[name] = append(s.Streams[name], l)
		} else if c, err2 := net.FilePacketConn(f); err2 == nil {
			s.Datagrams[name] = append(s.Datagrams[name], c)
		} else {
			errs = append(errs, fmt.Errorf("inherited descriptor %d, %q, is not a listening socket; allowed: ListenStream=, ListenDatagram=: %w", f.Fd(), name, err))
		}
		f.Close()
	}
	if err := errors.Join(errs...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Kind returns the network of the socket with a name: tcp, unix, udp or unixgram; empty: there is none.
func (s *Sockets) Kind(name string) string {
	for _, l := range s.Streams[name] {
		return l.Addr().Network()
	}
	for _, c := range s.Datagrams[name] {
		return c.LocalAddr().Network()
	}
	return ""
}

// Names returns the names of all sockets, sorted.
func (s *Sockets) Names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.Streams)), maps.Keys(s.Datagrams))
	slices.Sort(names)
	return slices.Compact(names)
}

// Close closes all sockets. The manager keeps its own descriptors of them, and new clients wait
// there.
func (s *Sockets) Close() {
	for _, all := range s.Streams {
		for _, l := range all {
			l.Close()
		}
	}
	for _, all := range s.Datagrams {
		for _, c := range all {
			c.Close()
		}
	}
}
