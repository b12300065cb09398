//go:build linux

// Package admin asks the admin listener of a penstock.
package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience bounds each request.
const patience = 30 * time.Second

// A Client asks one daemon, with a connection for each request.
type Client struct {
	Socket  string        // a path
	Timeout time.Duration // of Get; 0: 30 s
}

// Get returns an answer.
func (c *Client) Get(path string) ([]byte, error) {
	return c.ask(http.MethodGet, path, "", cmp.Or(c.Timeout, patience))
}

// Ask sends a request, with a body as JSON unless it is empty.
func (c *Client) Ask(method, path, body string) ([]byte, error) {
	return c.ask(method, path, body, patience)
}

// Transport returns what carries requests to the socket.
func (c *Client) Transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
	}}
}

// ErrNoWorker is the error of a request that no worker has answered: it starts, or hands over, or has ended.
var ErrNoWorker = errors.New("no worker answers")

// ErrConflict is the error of a request for what is there already, or contradicts what is: status 409.
var ErrConflict = errors.New("conflict")

func (c *Client) ask(method, path, body string, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	transport := c.Transport()
	transport.DisableKeepAlives = true
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, errors.Join(ErrNoWorker, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, errors.Join(ErrNoWorker, err)
	case resp.StatusCode == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%w: %s", ErrNoWorker, bytes.TrimSpace(b))
	case resp.StatusCode == http.StatusConflict:
		return nil, fmt.Errorf("%w: %s %s: %s", ErrConflict, method, path, bytes.TrimSpace(b))
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(b))
	}
	return b, nil
}

// Metrics returns a scrape.
func (c *Client) Metrics() (Metrics, error) {
	text, err := c.Get("/metrics")
	return ParseMetrics(text), err
}
