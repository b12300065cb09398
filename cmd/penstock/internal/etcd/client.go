package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// Config configures a Client. Only Remote is required; the others are 0 for their defaults.
type Config struct {
	Remote     remote.Config
	Timeout    time.Duration // of a request to one server; 5 s
	MaxMessage int64         // bytes of an answer, or of one message of a watch; 8 MiB
	PageKeys   int           // keys of one answer of Range; 1000
	MaxKeys    int           // keys of a whole range; 100,000
	MaxBytes   int64         // of the keys and values of a whole range; 64 MiB
	Silence    time.Duration // of a watch, after which the server is asked whether it still works; 10 s
	Renew      time.Duration // of a watch, after which it is made again; 15 min, because servers report progress every 10
	StaleAfter time.Duration // see StaleError; 1 min
	Backoff    remote.Backoff
}

// A Client is a client of one cluster. Its methods may be called from several goroutines. It runs nothing in
// the background.
type Client struct {
	cfg     Config
	remote  *remote.Client
	current atomic.Int64 // the server in use

	auth struct {
		sync.Mutex
		token string
		since time.Time
	}

	seen struct {
		sync.Mutex
		revision int64
		cluster  json.Number
		stale    time.Time // since when there are only older ones; zero: there are not
		epoch    int       // how often an older one was believed
	}

	probing chan struct{} // has room for the one that probes, and changes probed
	probed  struct {      // the last probe, which watches of the same server share
		at     time.Time // when it ended
		server int
		err    error
	}
}

// New returns a Client. It connects to nobody yet.
func New(cfg Config) (*Client, error) {
	r, err := remote.New(cfg.Remote)
	if err != nil {
		return nil, err
	}
	def(&cfg.Timeout, 5*time.Second)
	def(&cfg.MaxMessage, 8<<20)
	def(&cfg.PageKeys, 1000)
	def(&cfg.MaxKeys, 100_000)
	def(&cfg.MaxBytes, 64<<20)
	def(&cfg.Silence, 10*time.Second)
	def(&cfg.Renew, 15*time.Minute)
	def(&cfg.StaleAfter, time.Minute)
	c := &Client{cfg: cfg, remote: r, probing: make(chan struct{}, 1)}
	c.current.Store(rand.Int64N(int64(len(r.Servers())))) // relays spread over the servers
	return c, nil
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.remote.Close() }

// call sends a request to the server in use, and if it fails to the others, and decodes the answer into out,
// which has the header. A request that must not be made twice goes on only if nothing can have reached
// the server.
func (c *Client) call(ctx context.Context, path string, in, out any, repeatable bool) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var errs []error
	for range c.remote.Servers() {
		n := int(c.current.Load())
		err := c.callServer(ctx, n, path, body, out)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var answered *Error
		if errors.As(err, &answered) && !answered.temporary() {
			return err
		}
		c.failOver(n)
		errs = append(errs, err)
		if !repeatable && !notSent(err) {
			break
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return fmt.Errorf("no server answers: %w", errors.Join(errs...))
}

// failOver makes the server after n the one in use, unless somebody has done that already.
func (c *Client) failOver(n int) {
	c.current.CompareAndSwap(int64(n), int64((n+1)%len(c.remote.Servers())))
}

// notSent reports whether a request failed before any of it was sent.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// temporary reports whether another server, or the same one later, may answer well: there is no leader, or
// too much to do.
func (e *Error) temporary() bool {
	switch e.Code {
	case 4, 8, 13, 14: // deadline exceeded, resource exhausted, internal, unavailable
		return true
	}
	return e.Code == 0 && e.Status >= 500
}

// callServer sends a request to one server. If the server does not take the token, it gets a new one, once.
func (c *Client) callServer(ctx context.Context, n int, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	floor := c.revision()
	for again := false; ; again = true {
		token, err := c.token(ctx, n)
		if err != nil {
			return err
		}
		err = c.post(ctx, n, path, token, body, out)
		if c.badToken(err, token) && !again {
			continue
		}
		if err != nil {
			return c.withServer(n, err)
		}
		if h, ok := out.(interface{ header() header }); ok {
			return c.observe(n, h.header(), floor)
		}
		return nil
	}
}

// withServer adds the server's name to an error, if it does not have it.
func (c *Client) withServer(n int, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
		if u.Timeout() {
			err = errors.New("no answer in time")
		}
	}
	return fmt.Errorf("%s: %w", c.remote.Servers()[n], err)
}

func (c *Client) request(ctx context.Context, n int, path, token string, body io.Reader) (*http.Request, error) {
	u := *c.remote.Servers()[n]
	u.Path = path
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	return r, nil
}

// post sends a request once and decodes its answer.
func (c *Client) post(ctx context.Context, n int, path, token string, body []byte, out any) error {
	r, err := c.request(ctx, n, path, token, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := c.remote.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := remote.Read(res.Body, c.cfg.MaxMessage)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return decodeError(res.StatusCode, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the answer is not one of etcd: %w: %s", err, remote.Line(text))
	}
	return nil
}

// decodeError returns the error of an answer: {"code":5,"message":"..."}, or within a stream
// {"error":{"grpc_code":5,"message":"..."}}, or something that is not of etcd.
func decodeError(status int, text []byte) error {
	var e struct {
		Code    int             `json:"code"`
		GRPC    int             `json:"grpc_code"`
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(text, &e); err == nil {
		if len(e.Error) > 0 && e.Error[0] == '{' {
			if err := json.Unmarshal(e.Error, &e); err != nil {
				return &Error{Status: status, Message: remote.Line(text)}
			}
		}
		if message := remote.Line([]byte(e.Message)); message != "" {
			return &Error{status, max(e.Code, e.GRPC), message}
		}
	}
	return &Error{Status: status, Message: (&remote.StatusError{Status: status, Text: remote.Line(text)}).Error()}
}

// revision returns the highest revision seen.
func (c *Client) revision() int64 {
	c.seen.Lock()
	defer c.seen.Unlock()
	return c.seen.revision
}

// epoch returns how often an older revision was believed.
func (c *Client) epoch() int {
	c.seen.Lock()
	defer c.seen.Unlock()
	return c.seen.epoch
}

func (c *Client) sameCluster(h header) bool {
	c.seen.Lock()
	defer c.seen.Unlock()
	return c.seen.cluster == "" || c.seen.cluster == h.Cluster
}

// observe notes the revision of an answer to a request that was sent when floor was the highest seen. Every
// answer to a request that is not served from a server's own state has at least that.
func (c *Client) observe(n int, h header, floor int64) error {
	revision := int64(h.Revision)
	if revision <= 0 {
		return c.withServer(n, errors.New("the answer has no revision: this is not etcd"))
	}
	c.seen.Lock()
	defer c.seen.Unlock()
	same := c.seen.cluster == "" || c.seen.cluster == h.Cluster
	if same && revision >= floor {
		c.seen.cluster, c.seen.revision, c.seen.stale = h.Cluster, max(c.seen.revision, revision), time.Time{}
		return nil
	}
	now := time.Now()
	if c.seen.stale.IsZero() {
		c.seen.stale = now
	}
	until := c.seen.stale.Add(c.cfg.StaleAfter)
	if now.Before(until) {
		return &StaleError{c.remote.Servers()[n].String(), revision, floor, !same, until}
	}
	c.seen.cluster, c.seen.revision, c.seen.stale = h.Cluster, revision, time.Time{}
	c.seen.epoch++
	return nil
}

// probe asks a server for a key. What it answers does not matter, as long as it is an answer: a server that
// was stopped, or is cut off from the others, has none. What one watch finds out holds for those that have
// asked meanwhile.
func (c *Client) probe(ctx context.Context, n int, key string) error {
	asked := time.Now()
	select {
	case c.probing <- struct{}{}:
		defer func() { <-c.probing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p := &c.probed; p.server == n && (p.at.After(asked) || p.err == nil && time.Since(p.at) < c.cfg.Silence/2) {
		return p.err
	}
	body, err := json.Marshal(rangeRequest{Key: []byte(key)})
	if err != nil {
		return err
	}
	err = c.callServer(ctx, n, "/v3/kv/range", body, new(rangeResponse))
	if e := (*Error)(nil); errors.As(err, &e) && !e.temporary() {
		err = nil
	}
	if ctx.Err() == nil {
		c.probed.server, c.probed.at, c.probed.err = n, time.Now(), err
	}
	return err
}
