package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Client is a client of the admin API of one daemon. Its methods block until the daemon
// answers or the context ends. An error that the daemon returned is a *Problem. A Client may
// be used by several goroutines at once.
type Client struct {
	base  string // http://host
	token string
	http  *http.Client
}

// NewClient returns a client of the admin listener at unix:///PATH or tcp://HOST:PORT. The
// token is for TCP; an empty token is not sent.
func NewClient(address, token string) (*Client, error) {
	network, at, ok := strings.Cut(address, "://")
	switch {
	case ok && network == "unix" && strings.HasPrefix(at, "/"):
	case ok && network == "tcp" && at != "":
	default:
		return nil, fmt.Errorf("invalid admin address %q; allowed: unix:///PATH, tcp://HOST:PORT", address)
	}
	host := at
	if network == "unix" {
		host = "localhost"
	}
	var dialer net.Dialer
	return &Client{base: "http://" + host, token: token, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, network, at) },
		// The daemon is on this host: compression would cost more than it saves.
		DisableCompression: true,
	}}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the state of the daemon.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.get(ctx, "/v1/status", &s)
}

// Config returns the running configuration.
func (c *Client) Config(ctx context.Context) (s Config, err error) {
	return s, c.get(ctx, "/v1/config", &s)
}

// Diff returns what the text of a configuration would change.
func (c *Client) Diff(ctx context.Context, text []byte) (d Diff, err error) {
	return d, c.do(ctx, "POST", "/v1/config/diff", "application/yaml", text, &d)
}

// FileDiff returns what a reload would change now.
func (c *Client) FileDiff(ctx context.Context) (d Diff, err error) {
	return d, c.get(ctx, "/v1/config/diff", &d)
}

// Ended lists the flows that ended last and match a filter, latest first. If problems is
// true, it lists only those with a problem; if cause is not empty, only those with that cause or
// reason. A limit of 0 is the default of the daemon.
func (c *Client) Ended(ctx context.Context, f Filter, problems bool, cause string, limit int) (l EndedFlows, err error) {
	q := f.Query()
	if cause != "" {
		q.Set("cause", cause)
	}
	q.Set("problems", strconv.FormatBool(problems))
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return l, c.get(ctx, "/v1/ended?"+q.Encode(), &l)
}

// Reload makes the daemon read its configuration file again and apply it. An invalid file
// changes nothing; the error is then a *Problem with Errors.
func (c *Client) Reload(ctx context.Context) (d Diff, err error) {
	return d, c.do(ctx, "POST", "/v1/reload", "", nil, &d)
}

// Upgrade makes the daemon hand over to another process, and calls step with each step as it comes. It returns the last
// one; if that has neither Done nor Error, the daemon has handed over, and the status of the next process
// tells the result.
func (c *Client) Upgrade(ctx context.Context, u Upgrade, step func(UpgradeStep)) (last UpgradeStep, err error) {
	b, err := json.Marshal(u)
	if err != nil {
		return last, err
	}
	resp, err := c.open(ctx, "POST", "/v1/upgrade", "application/json", b)
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var next UpgradeStep
		if err := dec.Decode(&next); err != nil {
			return last, ctx.Err() // the end, in whatever way
		}
		last = next
		step(next)
	}
}

// Listeners lists the listeners with their routes.
func (c *Client) Listeners(ctx context.Context) (l Listeners, err error) {
	return l, c.get(ctx, "/v1/listeners", &l)
}

// Groups lists the groups with their members.
func (c *Client) Groups(ctx context.Context) (g Groups, err error) {
	return g, c.get(ctx, "/v1/groups", &g)
}

// Group returns one group with its members.
func (c *Client) Group(ctx context.Context, name string) (g Group, err error) {
	return g, c.get(ctx, "/v1/groups/"+url.PathEscape(name), &g)
}

// SetMember changes the members with the given name or address, and returns them with their
// new state.
func (c *Client) SetMember(ctx context.Context, group, member string, change MemberChange) (m Members, err error) {
	return m, c.send(ctx, "PATCH", "/v1/groups/"+url.PathEscape(group)+"/members/"+url.PathEscape(member), change, &m)
}

// AddMember adds a member to a group.
func (c *Client) AddMember(ctx context.Context, group string, m NewMember) (l Members, err error) {
	return l, c.send(ctx, "POST", "/v1/groups/"+url.PathEscape(group)+"/members", m, &l)
}

// RemoveMember removes a member from a group.
func (c *Client) RemoveMember(ctx context.Context, group, member string) (l Members, err error) {
	return l, c.do(ctx, "DELETE", "/v1/groups/"+url.PathEscape(group)+"/members/"+url.PathEscape(member), "", nil, &l)
}

// MemberChanges returns how running members differ from the file.
func (c *Client) MemberChanges(ctx context.Context) (m MemberChanges, err error) {
	return m, c.get(ctx, "/v1/changes", &m)
}

// Flows lists open flows. It holds the listing in memory; see EachFlow for long ones.
func (c *Client) Flows(ctx context.Context, f Filter, p Page) (l Flows, err error) {
	var flows []Flow
	l, err = c.EachFlow(ctx, f, p, func(flow *Flow) error {
		flows = append(flows, *flow)
		return nil
	})
	l.Flows = flows
	return l, err
}

// EachFlow calls do with each flow of a listing as it arrives. The flow is valid during the
// call. If do returns an error, EachFlow returns it. The returned Flows has no flows.
func (c *Client) EachFlow(ctx context.Context, f Filter, p Page, do func(*Flow) error) (l Flows, err error) {
	q := f.Query()
	p.Query(q)
	path := "/v1/flows"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	resp, err := c.open(ctx, "GET", path, "", nil)
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	if err = skip(dec, 2); err != nil { // {"flows":
		return l, err
	}
	if err = skip(dec, 1); err != nil { // [
		return l, err
	}
	for dec.More() {
		var flow Flow
		if err = dec.Decode(&flow); err != nil {
			return l, err
		}
		if err = do(&flow); err != nil {
			return l, err
		}
	}
	if err = skip(dec, 1); err != nil { // ]
		return l, err
	}
	// The rest holds the other members of the object.
	rest, err := io.ReadAll(io.MultiReader(dec.Buffered(), resp.Body))
	if err != nil {
		return l, err
	}
	rest = append([]byte("{"), bytes.TrimPrefix(bytes.TrimSpace(rest), []byte(","))...)
	return l, json.Unmarshal(rest, &l)
}

// skip skips n tokens.
func skip(dec *json.Decoder, n int) error {
	for range n {
		if _, err := dec.Token(); err != nil {
			return err
		}
	}
	return nil
}

// Flow returns one flow with the TCP state of its sockets.
func (c *Client) Flow(ctx context.Context, id uint64) (f FlowDetail, err error) {
	return f, c.get(ctx, "/v1/flows/"+strconv.FormatUint(id, 10), &f)
}

// Kill ends one flow.
func (c *Client) Kill(ctx context.Context, id uint64) error {
	return c.do(ctx, "DELETE", "/v1/flows/"+strconv.FormatUint(id, 10), "", nil, &Killed{})
}

// KillAll ends the flows that match a filter, which must not be empty, and returns how many
// it ended.
func (c *Client) KillAll(ctx context.Context, f Filter) (int64, error) {
	var k Killed
	q := f.Query()
	err := c.do(ctx, "DELETE", "/v1/flows?"+q.Encode(), "", nil, &k)
	return k.Killed, err
}

// Level returns the level of the log.
func (c *Client) Level(ctx context.Context) (string, error) {
	var l Level
	err := c.get(ctx, "/v1/log", &l)
	return l.Level, err
}

// SetLevel changes the level of the log.
func (c *Client) SetLevel(ctx context.Context, level string) error {
	return c.send(ctx, "PUT", "/v1/log", Level{Level: level}, &Level{})
}

// Drain returns the progress of a drain.
func (c *Client) Drain(ctx context.Context) (d Drain, err error) {
	return d, c.get(ctx, "/v1/drain", &d)
}

// StartDrain starts to drain the daemon: it takes no new flows, and exits after the last one
// has ended.
func (c *Client) StartDrain(ctx context.Context) (d Drain, err error) {
	return d, c.do(ctx, "POST", "/v1/drain", "", nil, &d)
}

// Events lists the events after an id.
func (c *Client) Events(ctx context.Context, after uint64) (e Events, err error) {
	return e, c.get(ctx, "/v1/events?after="+strconv.FormatUint(after, 10), &e)
}

// Stream calls do with a sample per second, until the context or the daemon ends, or do
// returns an error. It returns that error, or io.EOF if the daemon ended the stream.
func (c *Client) Stream(ctx context.Context, do func(*Sample) error) error {
	resp, err := c.open(ctx, "GET", "/v1/stream", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		var s Sample
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if err := do(&s); err != nil {
			return err
		}
	}
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	return c.do(ctx, "GET", path, "", nil, into)
}

func (c *Client) send(ctx context.Context, method, path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, method, path, "application/json", b, into)
}

func (c *Client) do(ctx context.Context, method, path, kind string, body []byte, into any) error {
	resp, err := c.open(ctx, method, path, kind, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// open sends a request and returns a successful answer. The caller closes its body.
func (c *Client) open(ctx context.Context, method, path, kind string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	p := new(Problem)
	if errors.Join(err, json.Unmarshal(b, p)) != nil || p.Status == 0 {
		p = NewProblem(resp.StatusCode, "the daemon answered "+resp.Status, "")
	}
	return nil, p
}
