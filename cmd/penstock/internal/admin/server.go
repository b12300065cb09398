package admin

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Limits for clients.
const (
	maxHeader = 16 << 10
	// maxAnonymousConns is the number of connections without a token, each of which may
	// last for anonymousTime. That suffices for browsers that load the page.
	maxAnonymousConns = 32
	anonymousTime     = 10 * time.Second
	maxConns          = 128 // of clients with a token, or on a Unix socket
	maxStreams        = 16
	maxListings       = 2 // listings of all flows at once; others wait
	// slowTime is how long a request may make no progress before its connection may be closed for
	// others that wait.
	slowTime = 2 * time.Second

	headerTime = 5 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 30 * time.Second // for a whole answer, or for one piece of a long one
	idleTime   = 60 * time.Second
)

// Server serves the admin API.
type Server struct {
	source           Source
	config           Config
	http             http.Server
	stream           hub
	listings         *turns
	scrapes          *scrapes
	profiles, traces sync.Mutex // held while a profile or trace is made
	once             sync.Once
	closed           chan struct{} // closed by Close; ends streams
	anonymousTime    time.Duration // see connLimit
	slowTime         time.Duration
	captures         atomic.Int32 // that are open
	changing         atomic.Int32 // reloads and changes of members that were not answered yet
}

// New returns a server that answers from source. The caller must close it.
func New(source Source, config Config) *Server {
	if config.Started.IsZero() {
		config.Started = time.Now()
	}
	s := &Server{source: source, config: config, listings: newTurns(maxListings), closed: make(chan struct{}), anonymousTime: anonymousTime, slowTime: slowTime}
	s.scrapes = newScrapes()
	s.stream = hub{sample: s.sampleText, every: time.Second}
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withConn,
		// Errors of a connection concern its client only.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s
}

// Serve serves the clients of l until Close is called, and then returns nil. It blocks, and
// closes l. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if l.Addr().Network() != "unix" && s.config.Token == "" {
		l.Close()
		return errors.New("an admin listener on TCP needs a token; allowed: a Unix socket, or admin.token")
	}
	err := s.http.Serve(limitConns(newReserve(l), s.anonymousTime, s.slowTime))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close stops listening, ends streams, and waits for other requests. When ctx ends, it
// closes their connections.
func (s *Server) Close(ctx context.Context) {
	s.once.Do(func() { close(s.closed) })
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}
