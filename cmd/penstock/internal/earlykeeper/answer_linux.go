package earlykeeper

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerTime bounds how long a client of the admin API is waited for.
const answerTime = time.Second

// answerMeanwhile answers who asks the admin API while no worker runs, until resume is called: a worker that dies again and again is
// seen in penstock status then. It looks at no request, and only clients of Unix sockets are answered, whose permissions say who may ask.
func answerMeanwhile(why string, held func(yield func(label string, fds []int) bool)) (resume func()) {
	var open []net.Listener
	held(func(label string, fds []int) bool {
		if strings.HasPrefix(label, LabelAdmin+"unix:") {
			for _, fd := range fds {
				if l, err := duplicateListener(fd); err == nil {
					open = append(open, l)
					go answerAll(l, noWorker(why))
				}
			}
		}
		return true
	})
	return func() {
		for _, l := range open {
			l.Close()
		}
	}
}

// duplicateListener returns a listener on a duplicate of a Unix socket. Closing it leaves the path.
func duplicateListener(fd int) (*net.UnixListener, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "admin")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		return u, nil
	}
	l.Close()
	return nil, syscall.EPROTOTYPE
}

// answerAll answers the clients of a listener, one after the other, until it is closed.
func answerAll(l net.Listener, answer string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.SetDeadline(time.Now().Add(answerTime))
		var begin [1]byte
		if _, err := c.Read(begin[:]); err == nil { // an answer before the request is none
			io.WriteString(c, answer)
			c.(*net.UnixConn).CloseWrite()
			io.Copy(io.Discard, io.LimitReader(c, 64<<10)) // what is not read would reset the connection
		}
		c.Close()
	}
}

// noWorker returns the answer of the admin API without a worker (RFC 9457), as the daemon writes problems.
func noWorker(why string) string {
	body := fmt.Sprintf(`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":%q}`, "no worker runs: "+printable(why)+"; the daemon's log says more")
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}

// printable returns text as it can stand in a JSON string that %q has quoted: in printable ASCII.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
