// Package ads is the protocol of xDS control planes: a [Client] holds one stream of the aggregated
// discovery service in its delta variant (DeltaAggregatedResources of envoy.service.discovery.v3),
// over HTTP/2 of net/http, with the framing of gRPC written out (grpc.go) and messages read and
// written field by field. It delivers resources, acknowledges or refuses them, and comes back when a
// stream fails. What is in them it does not know: package xds does.
package ads

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Options configure a Client.
type Options struct {
	Node Node
	// Registry is the control plane. The first of its servers that works is used; when it fails, the
	// next one is tried.
	Registry spec.Registry
	// Changed, if not nil, is called when a stream begins to work, and with an error when it has
	// failed. Calls come one at a time.
	Changed func(server string, err error)

	// In tests; zero: as always.
	ping  time.Duration
	after func(time.Duration, func())
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// A Client has at most one stream to a control plane, which all types share. It starts with the
// first subscription. Its methods are safe for concurrent use.
type Client struct {
	opt    Options
	http   *remote.Client
	cancel context.CancelFunc
	done   chan struct{}
	wanted chan struct{} // closed when there is a subscription

	mu     sync.Mutex
	types  []*Subscription // in the order in which requests are sent
	stream *stream         // nil: none
	begun  bool            // wanted is closed
}

// pingAfter is how long a connection is silent before the server is asked whether it still works. A server of gRPC ends
// connections with pings that come more often than it permits, which is every five minutes unless it was told otherwise
// (grpc-go: too_many_pings; its own client of xDS pings every five minutes). A host that is gone is noticed by TCP (package
// remote).
const pingAfter = 5*time.Minute + 10*time.Second

// A Type is what a client asks for of one type of resource.
type Type struct {
	URL      string
	Wildcard bool // all resources, and not those whose names are subscribed to

	// Handle takes a response, on the goroutine that reads the stream. It, or somebody later, must
	// call Reply. An error ends the stream.
	Handle func(*Response) error
	// Failed, if not nil, is called when the stream has failed, and with nil when it works again.
	Failed func(error)
}

// A Subscription is what the client and the control plane know of one type.
type Subscription struct {
	Type
	c     *Client
	names map[string]bool // subscribed to, unless Wildcard
	// versions are those of what the server has sent, so that it is not sent again: empty while it has not been
	// accepted, because a control plane must not take what was refused for what runs. A new stream has it sent,
	// and refused, again.
	versions map[string]string

	// Refusals in a row, without a response that was accepted between them, and of the last of
	// them how often in a row its content came.
	refusals, repeated int
	refused            []uint64 // hashes of the last contents, at most maxRefused

	// Of the present stream.
	requested   bool // the first request was sent
	subscribe   []string
	unsubscribe []string
	replies     []reply
}

type reply struct {
	nonce   string
	refusal string
}

// NewClient returns a Client, which the caller must close. The error is that of the registry's files.
func NewClient(opt Options) (*Client, error) {
	if opt.after == nil {
		opt.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	cfg := remote.Of(opt.Registry)
	cfg.HTTP2, cfg.PingAfter, cfg.PingTimeout = true, cmp.Or(opt.ping, pingAfter), opt.ping
	cfg.DialContext = opt.dial
	h, err := remote.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{opt: opt, http: h, cancel: cancel, done: make(chan struct{}), wanted: make(chan struct{})}
	go c.run(ctx)
	return c, nil
}

// Registry returns the control plane that the client was made for.
func (c *Client) Registry() spec.Registry { return c.opt.Registry }

// Close ends the stream and waits for the last call of a handler.
func (c *Client) Close() {
	c.cancel()
	<-c.done
	c.http.Close()
}

// healthyAfter is how long a stream must have lasted for the back-off to begin anew when it fails. A server
// that sends something and fails is not asked without end.
const healthyAfter = 30 * time.Second

func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	select {
	case <-c.wanted:
	case <-ctx.Done():
		return
	}
	var backoff remote.Backoff
	for at := 0; ; at++ {
		server := c.http.Servers()[at%len(c.http.Servers())].String()
		began := time.Now()
		err := c.talk(ctx, server)
		c.http.Close() // a connection that has failed is not used again
		if ctx.Err() != nil {
			return
		}
		c.report(server, err)
		if time.Since(began) >= healthyAfter {
			backoff = remote.Backoff{}
		}
		if backoff.Wait(ctx) != nil {
			return
		}
	}
}

// report tells everybody that the stream has failed, or that it works.
func (c *Client) report(server string, err error) {
	if c.opt.Changed != nil {
		c.opt.Changed(server, err)
	}
	c.mu.Lock()
	types := slices.Clone(c.types)
	c.mu.Unlock()
	for _, t := range types {
		if t.Failed != nil {
			t.Failed(err)
		}
	}
}

// Subscribe adds a type. Names are subscribed to later, unless it is a wildcard subscription.
func (c *Client) Subscribe(t Type) *Subscription {
	s := &Subscription{Type: t, c: c, names: map[string]bool{}, versions: map[string]string{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.types = append(c.types, s)
	if s.Wildcard {
		c.wake()
	}
	return s
}

// Add adds names to those that are subscribed to.
func (s *Subscription) Add(names ...string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, name := range names {
		if !s.names[name] {
			s.names[name] = true
			s.subscribe = append(s.subscribe, name)
		}
	}
	s.c.wake()
}

// Remove removes names.
func (s *Subscription) Remove(names ...string) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, name := range names {
		if s.names[name] {
			delete(s.names, name)
			delete(s.versions, name)
			s.unsubscribe = append(s.unsubscribe, name)
		}
	}
	s.c.wake()
}

// wake makes the stream write what there is to write. The caller holds the lock.
func (c *Client) wake() {
	if !c.begun {
		c.begun = true
		close(c.wanted)
	}
	if c.stream != nil {
		select {
		case c.stream.wake <- struct{}{}:
		default:
		}
	}
}

// begin makes s the stream: all types are asked for anew, with the versions that are known.
func (c *Client) begin(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = s
	for _, t := range c.types {
		t.requested, t.subscribe, t.unsubscribe, t.replies = false, nil, nil, nil
	}
	c.wake()
}

// requests returns what is to be written now.
func (c *Client) requests() (list []request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.types {
		if !t.requested {
			if !t.Wildcard && len(t.names) == 0 {
				t.subscribe, t.unsubscribe = nil, nil
				continue // without names it would be a wildcard subscription
			}
			t.requested = true
			list = append(list, request{url: t.URL, subscribe: slices.Sorted(maps.Keys(t.names)), known: maps.Clone(t.versions)})
			t.subscribe, t.unsubscribe = nil, nil
		}
		if len(t.subscribe)+len(t.unsubscribe) > 0 {
			// A name may have come and gone, or gone and come, since the last request.
			gone := slices.DeleteFunc(t.unsubscribe, func(name string) bool { return t.names[name] })
			come := slices.DeleteFunc(t.subscribe, func(name string) bool { return !t.names[name] })
			list = append(list, request{url: t.URL, subscribe: come, unsubscribe: gone})
			t.subscribe, t.unsubscribe = nil, nil
		}
		for _, r := range t.replies {
			list = append(list, request{url: t.URL, nonce: r.nonce, refusal: r.refusal})
		}
		t.replies = nil
	}
	return list
}

// received notes a response of the stream s, and has its type handle it.
func (c *Client) received(s *stream, r *Response) error {
	c.mu.Lock()
	i := slices.IndexFunc(c.types, func(t *Subscription) bool { return t.URL == r.URL && t.requested })
	if i < 0 {
		c.mu.Unlock()
		return errors.New("the control plane sent resources of a type that was not asked for: " + OneLine(r.URL))
	}
	t := c.types[i]
	if !t.Wildcard { // a name may have been unsubscribed from meanwhile
		r.Resources = slices.DeleteFunc(r.Resources, func(res Resource) bool { return !t.names[res.Name] })
	}
	if len(t.replies) >= maxReplies {
		c.mu.Unlock()
		return errors.New("the control plane sends, and does not read the replies")
	}
	r.client, r.stream, r.of = c, s, t
	if name, twice := r.twice(); twice {
		c.mu.Unlock()
		r.Reply(errors.New("the resource " + OneLine(name) + " is there twice"))
		return nil
	}
	for _, res := range r.Resources {
		if !res.Empty() {
			t.versions[res.Name] = ""
		}
	}
	for _, name := range r.Removed {
		delete(t.versions, name)
	}
	c.mu.Unlock()
	return t.Handle(r)
}

// maxReplies bounds the replies that the control plane has not taken yet.
const maxReplies = 1000

// twice returns a name that a response has twice: nobody could say what it shall be.
func (r *Response) twice() (string, bool) {
	seen := make(map[string]bool, len(r.Resources)+len(r.Removed))
	for i := range r.Resources {
		if seen[r.Resources[i].Name] {
			return r.Resources[i].Name, true
		}
		seen[r.Resources[i].Name] = true
	}
	for _, name := range r.Removed {
		if seen[name] {
			return name, true
		}
		seen[name] = true
	}
	return "", false
}

// Reply tells the control plane whether the response was accepted: nil, or why it was refused. It
// must be called once. A response that has come on no stream, as in tests, has nobody to reply to.
//
// A server that sends again what was refused, each time it is told, would have both sides busy with
// it for good. Therefore it is told more and more slowly; a server that finds something new that is wrong,
// each time, is told after half a second.
func (r *Response) Reply(err error) {
	c, t := r.client, r.of
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != r.stream {
		return // the stream has ended, and with it the nonce
	}
	for _, res := range r.Resources {
		if _, ok := t.versions[res.Name]; ok && err == nil && !res.Empty() { // it was not removed meanwhile
			t.versions[res.Name] = res.Version
		} else if ok && err != nil {
			t.versions[res.Name] = ""
		}
	}
	if err == nil {
		t.refusals, t.repeated, t.refused = 0, 0, nil
		t.replies = append(t.replies, reply{nonce: r.nonce})
		c.wake()
		return
	}
	content := r.digest()
	if t.refusals++; slices.Contains(t.refused, content) {
		t.repeated++
	} else {
		t.repeated = 0
		if len(t.refused) == maxRefused {
			t.refused = t.refused[1:]
		}
		t.refused = append(t.refused, content)
	}
	// What is kept until then is small.
	stream, answer := r.stream, reply{r.nonce, shortReason(err)}
	if t.refusals == 1 {
		t.replies = append(t.replies, answer)
		c.wake()
		return
	}
	c.opt.after(refusalDelay(t.repeated), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stream == stream {
			t.replies = append(t.replies, answer)
			c.wake()
		}
	})
}

// maxRefused is how many contents are known again: a server may alternate between some that are all refused.
const maxRefused = 8

// maxReason is the maximum length of the reason of a refusal. Servers limit headers and messages; a
// reason of thousands of lines helps nobody.
const maxReason = 4 << 10

// shortReason returns the reason of a refusal: text that a server can read.
func shortReason(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// refusalDelay returns the delay of a refusal whose content has been refused n times before in a row.
func refusalDelay(n int) time.Duration {
	const least, most = 500 * time.Millisecond, 30 * time.Second
	if n > 6 {
		return most
	}
	return least << max(0, n-1)
}

// seed is that of the hashes of contents.
var seed = maphash.MakeSeed()

// digest returns a hash of the response's content, without versions.
func (r *Response) digest() uint64 {
	if r.content != 0 {
		return r.content
	}
	var h maphash.Hash
	h.SetSeed(seed)
	for _, res := range r.Resources {
		h.WriteString(res.Name)
		h.WriteByte(0)
		h.WriteString(res.URL)
		h.WriteByte(0)
		h.Write(res.Value)
		h.WriteByte(1)
	}
	for _, name := range r.Removed {
		h.WriteString(name)
		h.WriteByte(2)
	}
	return h.Sum64()
}

// Drop forgets the values, which may be large, of a response that waits for its reply.
func (r *Response) Drop() {
	r.content = r.digest()
	for i := range r.Resources {
		r.Resources[i].Value = nil
	}
}
