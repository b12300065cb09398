package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	logs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// sendTimeout bounds one request.
	sendTimeout = 10 * time.Second
	// maxAnswer bounds an answer, which has a number and a text at the most.
	maxAnswer = 64 << 10
	// maxPause bounds for how long a collector may ask to be left alone.
	maxPause = 5 * time.Minute
)

// A Client sends to one collector. Its methods may be called from several goroutines.
type Client struct {
	cfg  spec.OTLP
	dial func(*remote.Config) // changes how the collector is reached, in tests; nil: nothing is changed

	mu     sync.Mutex
	client *remote.Client // nil: not made yet, or its files could not be read
	busy   time.Time      // until when the collector has asked to be left alone
}

// New returns a client. It connects to nobody, and reads the files of cfg with the first request.
func New(cfg spec.OTLP) *Client { return &Client{cfg: cfg} }

// A RetryError is the error of a request that may be sent again: the collector was not reached, or is busy.
type RetryError struct {
	Err   error
	After time.Duration // how long the collector asks to be left alone; 0: it does not say
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

// Metrics sends metrics. What the collector has refused of it is an error.
func (c *Client) Metrics(ctx context.Context, r *metrics.ExportMetricsServiceRequest) error {
	answer := new(metrics.ExportMetricsServiceResponse)
	err := c.send(ctx, "/v1/metrics", r, answer)
	if p := answer.GetPartialSuccess(); err == nil && p.GetRejectedDataPoints() > 0 {
		return fmt.Errorf("the collector has refused %d data points: %s", p.GetRejectedDataPoints(), remote.Line([]byte(p.GetErrorMessage())))
	}
	return err
}

// Logs sends log records. It returns how many of them the collector has refused, with an error that says why.
func (c *Client) Logs(ctx context.Context, r *logs.ExportLogsServiceRequest) (refused int64, err error) {
	answer := new(logs.ExportLogsServiceResponse)
	err = c.send(ctx, "/v1/logs", r, answer)
	if p := answer.GetPartialSuccess(); err == nil && p.GetRejectedLogRecords() > 0 {
		return p.GetRejectedLogRecords(), fmt.Errorf("the collector has refused records: %s", remote.Line([]byte(p.GetErrorMessage())))
	}
	return 0, err
}

func (c *Client) send(ctx context.Context, path string, request, answer proto.Message) error {
	body, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	z.Write(body)
	z.Close()
	client, err := c.made()
	if err != nil {
		return &RetryError{Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	to, err := url.Parse(c.cfg.To)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, "POST", to.JoinPath(path).String(), &b)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "gzip")
	r.Header.Set("User-Agent", "penstock")
	got, err := client.Do(r)
	if err != nil {
		return &RetryError{Err: err}
	}
	defer got.Body.Close()
	text, err := remote.Read(got.Body, maxAnswer)
	if got.StatusCode/100 != 2 { // the specification knows 200; Loki answers 204, others 202
		err := refusal(got, text)
		if again := (*RetryError)(nil); errors.As(err, &again) {
			c.mu.Lock()
			c.busy = time.Now().Add(again.After)
			c.mu.Unlock()
		}
		return err
	}
	// It has what was sent. An answer that cannot be read refuses nothing of it.
	if err != nil || !strings.HasPrefix(got.Header.Get("Content-Type"), "application/x-protobuf") || proto.Unmarshal(text, answer) != nil {
		proto.Reset(answer)
	}
	return nil
}

// refusal returns the error of an answer that is no success. The statuses of which a client may try again are those of the
// specification, "Retryable Response Codes".
func refusal(r *http.Response, text []byte) error {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/") {
		text = nil // a google.rpc.Status, of which the text would be unreadable
	}
	err := error(&remote.StatusError{Status: r.StatusCode, Text: remote.Line(text)})
	switch r.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &RetryError{Err: err, After: pause(r.Header.Get("Retry-After"))}
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return fmt.Errorf("%s leads to %s; allowed: the URL itself", r.Request.URL, remote.Line([]byte(r.Header.Get("Location"))))
	}
	return err
}

// pause returns what Retry-After asks for (RFC 9110, 10.2.3), in seconds; 0: nothing that can be read.
func pause(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxPause)
}

// made returns the client of the server. If its files cannot be read, the next request tries again.
func (c *Client) made() (*remote.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	u, err := url.Parse(c.cfg.To)
	if err != nil {
		return nil, err
	}
	cfg := remote.Config{Servers: []string{u.Scheme + "://" + u.Host}, CA: c.cfg.CA, TokenFile: c.cfg.TokenFile}
	if c.dial != nil {
		c.dial(&cfg)
	}
	c.client, err = remote.New(cfg)
	return c.client, err
}

// Wait waits for as long as the collector has asked to be left alone, or until ctx ends.
func (c *Client) Wait(ctx context.Context) {
	c.mu.Lock()
	busy := c.busy
	c.mu.Unlock()
	remote.Sleep(ctx, time.Until(busy))
}

// Close closes the connections that are idle.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.Close()
	}
}

// Retry calls send until it succeeds, its error is none that another attempt could cure, or until has passed or ctx ends,
// and returns its last error.
func Retry(ctx context.Context, until time.Duration, send func(context.Context) error) error {
	deadline := time.Now().Add(until)
	wait := remote.Backoff{Min: 500 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := send(ctx)
		var again *RetryError
		if !errors.As(err, &again) {
			return err
		}
		d := max(wait.Next(), again.After)
		if time.Now().Add(d).After(deadline) || remote.Sleep(ctx, d) != nil {
			return err
		}
	}
}
