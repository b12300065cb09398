package ads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"golang.org/x/time/rate"
)

// method is the path of the one method that is called.
const method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// settleTime is how long a stream must have been open, without a message, to count as one that works: a
// server that has nothing new to say says nothing. That it is there, TCP and pings tell (package remote).
const settleTime = 2 * time.Second

// Bounds of how fast responses are read. A message of more than costBytes counts as several: reading it is work.
const (
	maxRate   = 200 // a second
	maxBurst  = 2000
	costBytes = 64 << 10
)

// Bounds of how slowly a message may come. A server that stops in the middle of one answers pings, and says nothing more.
const (
	slowTime  = time.Minute
	leastRate = 16 << 10 // bytes a second, besides
)

var errSlow = errors.New("the control plane takes too long to send a message")

// A stream is one call of the method.
type stream struct {
	wake chan struct{}
}

// talk has one stream with a server, until it ends. The error is why.
func (c *Client) talk(ctx context.Context, server string) (err error) {
	s := &stream{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(ctx)
	body, w := io.Pipe()
	written := make(chan struct{})
	working := &workingOnce{report: func() { c.report(server, nil) }}
	defer func() {
		c.mu.Lock()
		c.stream = nil
		c.mu.Unlock()
		cancel(nil)
		w.Close()
		<-written
		working.stop()
	}()
	c.begin(s)
	go func() {
		defer close(written)
		if err := c.write(ctx, s, w); err != nil {
			cancel(err)
		}
	}()

	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { working.after(settleTime) }})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, server+method, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", "penstock/"+c.opt.Node.Version)
	resp, err := c.http.Do(req)
	if err != nil {
		return plainError(ctx, err)
	}
	defer resp.Body.Close()
	if err := checkAnswer(resp); err != nil {
		return err
	}
	limit := rate.NewLimiter(maxRate, maxBurst)
	for {
		size, err := readPrefix(resp.Body, MaxMessage)
		if err == io.EOF {
			if err, ok := statusOf(resp.Trailer); ok {
				return err
			}
			return errors.New("the control plane ended the stream without a status")
		}
		if err != nil {
			return plainError(ctx, err)
		}
		slow := time.AfterFunc(slowTime+time.Duration(size/leastRate)*time.Second, func() { cancel(errSlow) })
		message, err := readMessage(resp.Body, size)
		slow.Stop()
		if err != nil {
			return plainError(ctx, err)
		}
		r, err := parseResponse(message)
		if err != nil {
			return err
		}
		working.now()
		if err := c.received(s, r); err != nil {
			return err
		}
		if err := limit.WaitN(ctx, 1+len(message)/costBytes); err != nil {
			return plainError(ctx, err)
		}
	}
}

// plainError returns the error of a stream without what is known anyway.
func plainError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the control plane closed the connection")
	}
	return fmt.Errorf("stream: %s", OneLine(err.Error()))
}

// write writes requests as they come up, until ctx ends. Then it closes w, because nothing else ends the stream: once
// it has the headers of the answer, net/http notices the end of a context only when the body's Read returns.
func (c *Client) write(ctx context.Context, s *stream, w *io.PipeWriter) error {
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) }) // also while a Write is blocked
	defer func() {
		if stop() {
			w.CloseWithError(context.Canceled)
		}
	}()
	node := &c.opt.Node
	var frames bytes.Buffer
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		frames.Reset()
		for _, r := range c.requests() {
			r.node, node = node, nil
			frames.Write(appendFrame(nil, r.append(nil)))
		}
		if frames.Len() == 0 {
			continue
		}
		if _, err := w.Write(frames.Bytes()); err != nil {
			return err
		}
	}
}
