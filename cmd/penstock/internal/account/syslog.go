package account

import (
	"cmp"
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// syslogPriority is facility daemon (3), severity informational (6); RFC 5424, 6.2.1.
	syslogPriority = 3<<3 | 6
	// syslogTimeout bounds connecting, and the writing of one batch.
	syslogTimeout = 5 * time.Second
	// syslogRetryPause is the pause after a failed attempt to connect.
	syslogRetryPause = time.Second
)

// syslog is a sink that writes RFC 5424 messages: one per datagram (RFC 5426), or
// with octet counting on a stream (RFC 6587, 3.4.1). The standard library's log/syslog
// is frozen at the older RFC 3164, which has no year, no fraction of a second and no
// framing.
type syslog struct {
	batch
	to      spec.Endpoint
	format  formatter
	head    []byte // the part of each header after the time
	message []byte // the message being built
	conn    net.Conn
	stream  bool      // conn is a stream
	retryAt time.Time // earliest time of the next attempt to connect
	lastErr error     // of the last attempt to connect
	ctx     context.Context
	cancel  context.CancelFunc
}

func newSyslog(to spec.Endpoint, format formatter) *syslog {
	host, _ := os.Hostname()
	head := " " + cmp.Or(headerField(host, 255), "-") + " penstock " + strconv.Itoa(os.Getpid()) + " flow - "
	ctx, cancel := context.WithCancel(context.Background())
	return &syslog{to: to, format: format, head: []byte(head), ctx: ctx, cancel: cancel}
}

// headerField returns s as a header field: at most n characters of printable ASCII
// without spaces.
func headerField(s string, n int) string {
	b := []byte(s[:min(len(s), n)])
	for i, c := range b {
		if c <= ' ' || c >= 0x7f {
			b[i] = '_'
		}
	}
	return string(b)
}

// appendMessage appends one message: the time at which the flow ended, and its line.
func (s *syslog) appendMessage(b []byte, e *Entry) []byte {
	b = append(b, '<')
	b = strconv.AppendInt(b, syslogPriority, 10)
	b = append(b, ">1 "...)
	b = e.Start.Add(e.Duration).UTC().Truncate(time.Microsecond).AppendFormat(b, time.RFC3339Nano)
	b = append(b, s.head...)
	return s.format(b, e)
}

func (s *syslog) put(e *Entry) (written, failed int, err error) {
	if err := s.connect(); err != nil {
		return 0, 1, err
	}
	s.message = s.appendMessage(s.message[:0], e)
	if !s.stream {
		s.conn.SetWriteDeadline(time.Now().Add(syslogTimeout))
		if _, err := s.conn.Write(s.message); err != nil {
			if s.to.Kind != spec.UDP { // a UDP socket survives an ICMP error
				s.disconnect()
			}
			return 0, 1, err
		}
		return 1, 0, nil
	}
	s.buf = strconv.AppendInt(s.buf, int64(len(s.message)), 10)
	s.buf = append(s.buf, ' ')
	s.buf = append(s.buf, s.message...)
	s.ends = append(s.ends, len(s.buf))
	if len(s.buf) < maxBatch {
		return 0, 0, nil
	}
	return s.flush()
}

func (s *syslog) flush() (written, failed int, err error) {
	if len(s.ends) == 0 {
		return 0, 0, nil
	}
	s.conn.SetWriteDeadline(time.Now().Add(syslogTimeout))
	n, err := s.conn.Write(s.buf)
	written = s.lines(n)
	failed = len(s.ends) - written
	s.reset()
	if err != nil { // perhaps in the middle of a message: start over with a new stream
		s.disconnect()
	}
	return written, failed, err
}

// connect connects to the server unless s is connected. A Unix path may be a datagram
// or a stream socket.
func (s *syslog) connect() error {
	if s.conn != nil {
		return nil
	}
	if time.Now().Before(s.retryAt) {
		return s.lastErr
	}
	networks, address := []string{"unixgram", "unix"}, s.to.Path
	switch s.to.Kind {
	case spec.UDP:
		networks = []string{"udp"}
	case spec.TCP:
		networks = []string{"tcp"}
	}
	if s.to.Path == "" {
		address = net.JoinHostPort(s.to.Host, strconv.Itoa(int(s.to.Port)))
	}
	ctx, cancel := context.WithTimeout(s.ctx, syslogTimeout)
	defer cancel()
	var d net.Dialer
	var err error
	for _, network := range networks {
		if s.conn, err = d.DialContext(ctx, network, address); err == nil {
			s.stream = network == "tcp" || network == "unix"
			return nil
		}
	}
	s.conn, s.lastErr, s.retryAt = nil, err, time.Now().Add(syslogRetryPause)
	return err
}

func (s *syslog) disconnect() {
	s.conn.Close()
	s.conn, s.retryAt, s.lastErr = nil, time.Time{}, nil
}

func (s *syslog) reopen() error { return nil }

// abort ends an attempt to connect. A write is bounded by its deadline.
func (s *syslog) abort() { s.cancel() }

func (s *syslog) close() {
	s.cancel()
	if s.conn != nil {
		s.conn.Close()
	}
}
