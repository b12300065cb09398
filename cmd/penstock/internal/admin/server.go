package admin

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of what clients take.
const (
	maxHeader = 16 << 10
	// maxStrangers connections are open that have shown no token, each for
	// strangerTime: enough for the browsers that load the page.
	maxStrangers = 32
	strangerTime = 10 * time.Second
	maxConns     = 128 // of clients with a token, or on a Unix socket
	maxStreams   = 16
	maxWalks     = 2 // listings that walk over all flows at once; others wait

	headerTime = 5 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 30 * time.Second // of a whole answer, or of one piece of a long one
	idleTime   = 60 * time.Second
)

// Server serves the admin API. Make it with New; Close ends it.
type Server struct {
	source           Source
	config           Config
	http             http.Server
	stream           hub
	walks            chan struct{}
	scrapes          *exposition
	profiles, traces sync.Mutex // one of each at a time
	once             sync.Once
	closed           chan struct{} // Close has begun: streams end
	patience         time.Duration // with connections that have shown no token
}

// New returns a server of what source knows.
func New(source Source, config Config) *Server {
	if config.Started.IsZero() {
		config.Started = time.Now()
	}
	s := &Server{source: source, config: config, walks: make(chan struct{}, maxWalks), closed: make(chan struct{}), patience: strangerTime}
	s.scrapes = newExposition()
	s.stream = hub{sample: s.sampleText, every: time.Second}
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       remember,
		// What goes wrong with a client is told to the client.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s
}

// Serve answers the clients of l until Close, and owns l. It blocks, and returns
// nil after Close. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if l.Addr().Network() != "unix" && s.config.Token == "" {
		l.Close()
		return errors.New("the admin listener on TCP has no token; allowed: a Unix socket, or a token")
	}
	err := s.http.Serve(admit(newReserve(l), s.patience))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close stops listening, ends streams, and lets other requests end until ctx
// does; then they are cut.
func (s *Server) Close(ctx context.Context) {
	s.once.Do(func() { close(s.closed) })
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
}
