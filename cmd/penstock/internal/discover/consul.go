package discover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

const (
	// consulWait is the longest time that a blocking query waits for a change, and up to a fifth less. Consul's own default is
	// 5 minutes; an agent that is silent is noticed sooner so.
	consulWait = 2 * time.Minute
	// consulGrace is added to that until the agent is taken to be gone; Consul adds up to a sixteenth of the wait by itself.
	consulGrace = consulWait/16 + 15*time.Second
	// maxStaleness is how old an answer may be that a server gives without asking the leader. One that is older, or from a server
	// that knows no leader, is not used, and the next query goes to the leader.
	maxStaleness = 10 * time.Second

	maxConsulAnswer = 1 << 28 // bytes; it is read instance by instance
	maxInstance     = 1 << 20 // bytes of an instance with its checks
	maxInstances    = 1 << 16
)

// A consulSource finds members among the instances of a service, by blocking queries.
type consulSource struct {
	sources *Sources
	what    spec.Discover
}

func (c consulSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	c.sources.watch(ctx, c.what, update, c.follow)
}

// A consulWatch is a consulSource that is watched.
type consulWatch struct {
	consulSource
	feed   *feed
	client *remote.Client // nil: none yet
	server int            // which of the client's servers is asked
	index  uint64         // 0: the next query does not block
	leader bool           // the next query goes to the leader although Stale is set
	failed remote.Backoff
}

func (c consulSource) follow(ctx context.Context, f *feed) {
	w := &consulWatch{consulSource: c, feed: f}
	defer func() {
		if w.client != nil {
			w.client.Close()
		}
	}()
	var pace consulPace
	for ctx.Err() == nil {
		err := w.round(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			w.failed.Working()
			remote.Sleep(ctx, pace.next())
		default:
			remote.Sleep(ctx, w.handle(err))
		}
	}
}

// handle reports an error, and returns how long to wait before the next query.
func (c *consulWatch) handle(err error) time.Duration {
	c.index = 0
	var denied *deniedError
	if errors.As(err, &denied) {
		if token, err := c.client.Token(); err == nil && token != denied.token {
			return 0 // it has been replaced meanwhile
		}
	}
	if errors.Is(err, errStale) && !c.leader {
		c.leader = true // the next query asks the leader; if it has none, that is the error
		return c.failed.Next()
	}
	c.feed.failed(err)
	var status *statusError
	wait := c.failed.Next()
	if errors.As(err, &status) {
		wait = max(wait, status.retryAfter)
	}
	if c.client != nil {
		if n := len(c.client.Servers()); n > 1 {
			c.server = (c.server + 1) % n
		}
		c.client.Close() // a name may lead to another server now
	}
	return wait
}

var errStale = errors.New("the server has not heard from a leader for too long (stale)")

// round makes a query, and tells its answer.
func (c *consulWatch) round(ctx context.Context) error {
	if c.client == nil {
		cfg := remote.Of(c.what.Registry)
		cfg.DialContext = c.sources.opt.dial
		client, err := remote.New(cfg)
		if err != nil {
			return err
		}
		c.client = client
		c.server = rand.N(len(client.Servers()))
	}
	request, token, timeout, err := c.request()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errSlow)
	defer cancel()
	answer, err := c.client.Do(request.WithContext(ctx))
	if err != nil {
		return causeOf(ctx, err)
	}
	defer answer.Body.Close()
	if err := checkAnswer(answer, token); err != nil {
		return err
	}
	stale := c.what.Stale && !c.leader
	if stale && tooStale(answer.Header) {
		return errStale
	}
	index, err := consulIndex(answer.Header, c.index)
	if err != nil {
		return err
	}
	instances, err := readInstances(&remote.BoundedReader{R: answer.Body, Left: maxConsulAnswer})
	if err != nil {
		return fmt.Errorf("instances of %s: %w", c.what.Key, causeOf(ctx, err))
	}
	if len(instances) == 0 && answer.Header.Get("X-Consul-Results-Filtered-By-ACLs") == "true" {
		return &deniedError{fmt.Errorf("the token may not see the instances of %s: it needs service:read and node:read", c.what.Key), token}
	}
	if err := tellInstances(c.feed, instances, c.what); err != nil {
		return err
	}
	c.feed.connected()
	c.index, c.leader = index, false
	return nil
}

// request returns the next query, its token, and how long the answer may take.
func (c *consulWatch) request() (r *http.Request, token string, timeout time.Duration, err error) {
	query := url.Values{}
	timeout = listTimeout
	if c.index > 0 {
		wait := consulWait - rand.N(consulWait/5)
		query.Set("index", strconv.FormatUint(c.index, 10))
		query.Set("wait", strconv.Itoa(int(wait/time.Second))+"s")
		timeout = wait + consulGrace
	}
	for name, value := range map[string]string{"dc": c.what.Datacenter, "ns": c.what.Namespace, "partition": c.what.Partition, "peer": c.what.Peer} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.what.Tags != "" {
		query["tag"] = strings.Split(c.what.Tags, ",")
	}
	if c.what.Stale && !c.leader {
		query.Set("stale", "")
	}
	u := *c.client.Servers()[c.server]
	u.Path, u.RawQuery = "/v1/health/service/"+c.what.Key, query.Encode()
	if r, err = http.NewRequest(http.MethodGet, u.String(), nil); err != nil {
		return nil, "", 0, err
	}
	if token, err = c.client.Token(); err != nil {
		return nil, "", 0, err
	}
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	r.Header.Set("User-Agent", "penstock")
	return r, token, timeout, nil
}

// tooStale reports whether an answer to a query with stale is too old.
func tooStale(h http.Header) bool {
	last, err := strconv.ParseUint(h.Get("X-Consul-LastContact"), 10, 63)
	return h.Get("X-Consul-KnownLeader") == "false" || err == nil && last > uint64(maxStaleness/time.Millisecond)
}

// consulIndex returns the index of the next query, by the rules of Consul's documentation of blocking queries: one that
// goes backwards starts anew, and 0 would not block.
func consulIndex(h http.Header, before uint64) (uint64, error) {
	text := h.Get("X-Consul-Index")
	index, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the answer has no valid X-Consul-Index: is this Consul? %q", remote.Line([]byte(text)))
	case index < before:
		return 0, nil
	}
	return max(index, 1), nil
}

// A consulPace spreads the queries of a service that changes all the time, or of a server that does not block: some at once, and
// then one per second, as Consul's documentation asks.
type consulPace struct {
	at   time.Time // until when room was counted
	room int       // queries that may follow at once
}

const consulBurst = 10

// next returns how long to wait before the next query.
func (p *consulPace) next() time.Duration {
	now := time.Now()
	if p.at.IsZero() {
		p.at, p.room = now, consulBurst
	}
	if gained := int(now.Sub(p.at) / time.Second); gained > 0 {
		p.room = min(consulBurst, p.room+gained)
		p.at = now
	}
	if p.room > 0 {
		p.room--
		return defaultInterval
	}
	return time.Second
}
