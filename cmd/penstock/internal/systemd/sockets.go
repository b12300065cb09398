package systemd

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets are what the service manager has passed, by name: FileDescriptorName=
// of the socket unit, by default the unit's own name. One name may have several.
type Sockets struct {
	Streams   map[string][]net.Listener
	Datagrams map[string][]net.PacketConn
}

// Inherit takes over the sockets of LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES,
// and removes these variables. The caller must close each socket, in itself or with
// Close; a Unix socket's path is the manager's, and stays. A descriptor that
// is no bound socket is an error, and then none is taken.
//
// It is called once, before the process opens anything that could have one of
// the numbers.
func Inherit() (*Sockets, error) {
	return sockets(activation.Files(true))
}

func sockets(files []*os.File) (*Sockets, error) {
	s := &Sockets{Streams: make(map[string][]net.Listener), Datagrams: make(map[string][]net.PacketConn)}
	var errs []error
	for _, f := range files {
		name := f.Name()
		// Both make a duplicate, and refuse a socket of the other kind.
		if l, err := net.FileListener(f); err == nil {
			s.Streams[name] = append(s.Streams[name], l)
		} else if c, err2 := net.FilePacketConn(f); err2 == nil {
			s.Datagrams[name] = append(s.Datagrams[name], c)
		} else {
			errs = append(errs, fmt.Errorf("inherited descriptor %d, %q, is no socket to listen on; allowed: ListenStream=, ListenDatagram=: %w", f.Fd(), name, err))
		}
		f.Close()
	}
	if err := errors.Join(errs...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Names are the names of all sockets, sorted.
func (s *Sockets) Names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.Streams)), maps.Keys(s.Datagrams))
	slices.Sort(names)
	return slices.Compact(names)
}

// Close closes all sockets. The manager keeps its own descriptors of them, and
// clients wait there.
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
