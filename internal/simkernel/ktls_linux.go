package simkernel

import (
	"encoding/binary"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// kTLS of a TCP socket: net/tls, tls_sw.c. Only AES-GCM is there.

// socketTLS is what a socket has of it.
type socketTLS struct {
	Records
	sends uint8  // the type of records that are sent
	raw   []byte // what was taken from the socket of a record whose end has not come, or of what is no record
	none  bool   // which the socket's error has told, or will
}

// pull takes the next record from what was received, if there is all of it and nothing is left of the last one. It is the strparser, which looks
// whenever something has come or a record has been read.
func (s *tcpSocket) pull() {
	t := s.tls
	for !t.opened && t.failed == 0 {
		size := 5
		if len(t.raw) >= 5 {
			size += int(binary.BigEndian.Uint16(t.raw[3:]))
		}
		if len(t.raw) == 5 || len(t.raw) == size {
			if t.Open(t.raw) > 0 {
				t.raw = t.raw[:0]
				return
			}
			if t.failed != 0 && len(t.raw) == 5 { // tls_strp_abort_strp
				t.none, s.err = true, t.failed
				s.wake(sys.Err)
			}
		}
		if t.failed != 0 || s.take(size-len(t.raw), func(b []byte) { t.raw = append(t.raw, b...) }) == 0 {
			return
		}
		s.windowOpens()
	}
}

// readTLS reads from the record that was opened, and has the next one be pulled.
func (s *tcpSocket) readTLS(p []byte, any, peek bool) (n int, kind uint8, e sys.Errno) {
	if s.tls.none {
		return 0, 0, sys.EAGAIN // the socket has the error
	}
	n, kind, e = s.tls.Read(p, any, peek)
	if e != 0 && e == s.tls.failed { // tls_err_abort: it is tried, and told, each time
		s.err = e
		s.wake(sys.Err)
	}
	s.pull()
	return n, kind, e
}

// noRecord is what a call returns if there is no record: tls_rx_rec_wait.
func (s *tcpSocket) noRecord() (int, sys.Errno) {
	switch {
	case s.err != 0:
		return 0, s.takeError()
	case s.shutRead:
		return 0, 0
	}
	return 0, sys.EAGAIN
}

// recvTLS is tls_sw_recvmsg: data of as many records as there are, or the rest of one of another type if any is set.
func (s *tcpSocket) recvTLS(n int, put func([]byte), any, peek bool) (done int, kind uint8, e sys.Errno) {
	b := make([]byte, n)
	for done < n {
		var m int
		if m, kind, e = s.readTLS(b[done:], any && done == 0, peek); e != 0 {
			break
		}
		done += m
		if peek || kind != sys.RecordData {
			break
		}
	}
	if done > 0 {
		put(b[:done])
		return done, kind, 0
	}
	if e == sys.EAGAIN {
		m, e := s.noRecord()
		return m, 0, e
	}
	return 0, kind, e
}

// spliceTLS is tls_sw_splice_read: of one record.
func (s *tcpSocket) spliceTLS(n int, put func([]byte)) (int, sys.Errno) {
	b := make([]byte, min(n, recordMost))
	m, _, e := s.readTLS(b, false, false)
	switch e {
	case 0:
		put(b[:m])
		return m, 0
	case sys.EIO:
		return 0, sys.EINVAL
	case sys.EAGAIN:
		return s.noRecord()
	}
	return 0, e
}

// secureSocket returns a socket with kTLS.
func (p *Process) secureSocket(fd int) (*tcpSocket, sys.Errno) {
	s, e := p.stream(fd)
	if e != 0 {
		return nil, e
	}
	if t, ok := s.(*tcpSocket); ok && t.tls != nil {
		return t, 0
	}
	return nil, sys.EOPNOTSUPP
}

// GiveTLS implements [sys.Kernel].
func (p *Process) GiveTLS(fd int, out, in *sys.TLSKeys) (bool, sys.Errno) {
	if _, e := p.begin("give-tls", 0); e != 0 {
		return false, e
	}
	s, e := p.stream(fd)
	if e != 0 {
		return false, e
	}
	t, ok := s.(*tcpSocket)
	switch {
	case !p.w.KernelTLS:
		return false, sys.ENOENT
	case !ok || t.tls != nil:
		return false, sys.EOPNOTSUPP
	case t.state != sys.TCPEstablished:
		return false, syscall.ENOTCONN
	}
	r := NewRecords(out, in)
	if r == nil {
		return false, sys.EOPNOTSUPP
	}
	t.tls = &socketTLS{Records: *r, sends: sys.RecordData}
	t.pull()
	p.point("give-tls")
	return true, 0
}

// RecvRecord implements [sys.Kernel]. Linux returns a record that carries no data in one piece if there is room for it (tls_sw_recvmsg), so a fault does not shorten it.
func (p *Process) RecvRecord(fd int, b []byte, peek bool) (n int, kind uint8, e sys.Errno) {
	_, e = p.beginOn("recv-record", len(b), fd, wakeRead)
	if e != 0 {
		return 0, 0, e
	}
	s, e := p.secureSocket(fd)
	if e != 0 {
		return 0, 0, e
	}
	n, kind, e = s.recvTLS(len(b), func(in []byte) { copy(b, in) }, true, peek)
	p.point("recv-record")
	return n, kind, e
}

// SendRecord implements [sys.Kernel].
func (p *Process) SendRecord(fd int, kind uint8, b []byte) sys.Errno {
	if _, e := p.beginOn("send-record", len(b), fd, wakeWrite); e != 0 {
		return e
	}
	s, e := p.secureSocket(fd)
	if e != 0 {
		return e
	}
	s.tls.sends = kind
	_, e = p.moves.sendFrom(s, b)
	s.tls.sends = sys.RecordData
	p.point("send-record")
	return e
}
