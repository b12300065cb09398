package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A consulAPI is an API with Consul's blocking queries: that of Consul, or of Nomad.
type consulAPI struct {
	product string
	path    string                            // of the instances of a service, which follows
	query   func(d *spec.Discover) url.Values // values that are empty are left out
	// read reads an answer; tell tells the members that its n instances make.
	read func(answer io.Reader, d *spec.Discover) (n int, tell func(*feed) error, err error)
}

var consul = &consulAPI{"Consul", "/v1/health/service/", func(d *spec.Discover) url.Values {
	return url.Values{"dc": {d.Datacenter}, "ns": {d.Namespace}, "partition": {d.Partition}, "peer": {d.Peer}, "tag": strings.Split(d.Tags, ",")}
}, func(answer io.Reader, d *spec.Discover) (n int, tell func(*feed) error, err error) {
	list, err := readInstances(answer)
	return len(list), func(f *feed) error { return tellInstances(f, list, *d) }, err
}}

// header returns the name of a header: Consul's and Nomad's differ in their beginning only.
func (a *consulAPI) header(name string) string { return "X-" + a.product + "-" + name }

// A consulSource finds members among the instances of a service, by blocking queries.
type consulSource struct {
	*consulAPI
	sources *Sources
	what    spec.Discover
}

func (c consulSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	c.sources.watch(ctx, c.what, update, c.follow)
}

// A consulWatch is a consulSource that is watched.
type consulWatch struct {
	*consulAPI
	asker
	what   spec.Discover
	feed   *feed
	index  uint64 // 0: the next query does not block
	leader bool   // the next query goes to the leader although Stale is set
}

func (c consulSource) follow(ctx context.Context, f *feed) {
	w := &consulWatch{consulAPI: c.consulAPI, asker: asker{sources: c.sources, registry: c.what.Registry, report: f.failed}, what: c.what, feed: f}
	defer w.close()
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
	if errors.Is(err, errStale) && !c.leader {
		c.leader = true // the next query asks the leader; if it has none, that is the error
		return c.failed.Next()
	}
	return c.asker.handle(err)
}

var errStale = errors.New("the server has not heard from a leader for too long (stale)")

// round makes a query, and tells its answer.
func (c *consulWatch) round(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	query, timeout := c.next()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errSlow)
	defer cancel()
	request, token, err := c.request(ctx, c.path+c.what.Key, query)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set(c.header("Token"), token)
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer answer.Body.Close()
	if err := checkAnswer(answer, token); err != nil {
		return err
	}
	stale := c.what.Stale && !c.leader
	if stale && c.tooStale(answer.Header) {
		return errStale
	}
	index, err := c.indexOf(answer.Header, c.index)
	if err != nil {
		return err
	}
	n, tell, err := c.read(&remote.BoundedReader{R: answer.Body, Left: maxConsulAnswer}, &c.what)
	if err != nil {
		return fmt.Errorf("instances of %s: %w", c.what.Key, causeOf(ctx, err))
	}
	if n == 0 && answer.Header.Get(c.header("Results-Filtered-By-ACLs")) == "true" {
		return &deniedError{fmt.Errorf("the token may not see the instances of %s: it needs service:read and node:read", c.what.Key), token}
	}
	if err := tell(c.feed); err != nil {
		return err
	}
	c.feed.connected()
	c.index, c.leader = index, false
	return nil
}

// next returns the next query, and how long the answer may take.
func (c *consulWatch) next() (query url.Values, timeout time.Duration) {
	query, timeout = url.Values{}, listTimeout
	if c.index > 0 {
		wait := consulWait - rand.N(consulWait/5)
		query.Set("index", strconv.FormatUint(c.index, 10))
		query.Set("wait", strconv.Itoa(int(wait/time.Second))+"s")
		timeout = wait + consulGrace
	}
	for name, value := range c.query(&c.what) {
		if len(value) > 0 && value[0] != "" {
			query[name] = value
		}
	}
	if c.what.Stale && !c.leader {
		query.Set("stale", "")
	}
	return query, timeout
}

// tooStale reports whether an answer to a query with stale is too old.
func (a *consulAPI) tooStale(h http.Header) bool {
	last, err := strconv.ParseUint(h.Get(a.header("LastContact")), 10, 63)
	return h.Get(a.header("KnownLeader")) == "false" || err == nil && last > uint64(maxStaleness/time.Millisecond)
}

// indexOf returns the index of the next query, by the rules of Consul's documentation of blocking queries: one that
// goes backwards starts anew, and 0 would not block.
func (a *consulAPI) indexOf(h http.Header, before uint64) (uint64, error) {
	text := h.Get(a.header("Index"))
	index, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the answer has no valid %s: is this %s? %q", a.header("Index"), a.product, remote.Line([]byte(text)))
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
