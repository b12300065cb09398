package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// A pace bounds how fast events are read: at most 1,000 a second, of 16 KB each. A server that sends more is slowed
// down by its connection.
type pace struct {
	since time.Time
	units int64
}

const maxPace = 1000

// wait notes an event of a size, and waits if there were too many.
func (p *pace) wait(ctx context.Context, size int64) error {
	now := time.Now()
	if now.Sub(p.since) >= time.Second {
		p.since, p.units = now, 0
	}
	if p.units += 1 + size>>14; p.units < maxPace {
		return nil
	}
	return remote.Sleep(ctx, p.since.Add(time.Second).Sub(now))
}

var (
	errSlow = errors.New("the server does not answer in time")
	errGone = errors.New("the server answers 410 (Gone) again and again: it no longer has the version that it has just listed")
)

// A deniedError is the answer that a token is not valid, or not allowed to do what was asked.
type deniedError struct {
	error
	token string // that was sent
}

func (e *deniedError) Unwrap() error { return e.error }

// A statusError is an answer with another status than 200.
type statusError struct {
	remote.StatusError
	retryAfter time.Duration
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = time.Minute

// checkAnswer returns an error unless an answer has status 200 and is JSON. token is the one that the request had.
func checkAnswer(answer *http.Response, token string) error {
	if answer.StatusCode == http.StatusOK {
		if kind := answer.Header.Get("Content-Type"); kind != "application/json" && !strings.HasPrefix(kind, "application/json;") {
			b, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
			return fmt.Errorf("the server answered %q instead of JSON; there may be a proxy in between: %s", text(kind, 60), remote.Line(b))
		}
		return nil
	}
	e := &statusError{StatusError: remote.StatusError{Status: answer.StatusCode}}
	if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && s > 0 {
		e.retryAfter = min(time.Duration(min(s, 3600))*time.Second, maxRetryAfter)
	}
	if to := answer.Header.Get("Location"); to != "" && answer.StatusCode/100 == 3 {
		e.Text = "redirects are not followed; this one leads to " + remote.Line([]byte(to))
		return e
	}
	b, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	e.Text = remote.Line(b)
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &status) == nil && status.Message != "" { // as Kubernetes has it
		e.Text = remote.Line([]byte(status.Message))
	}
	switch answer.StatusCode {
	case http.StatusGone:
		return errGone
	case http.StatusUnauthorized, http.StatusForbidden:
		return &deniedError{e, token}
	}
	return e
}

// causeOf returns why ctx ended, if that is the reason of err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return cause
	}
	return err
}

// metadata returns m as canonical JSON, or nothing if it is empty or too large for a Target.
func metadata(m map[string]any) string {
	if len(m) == 0 {
		return ""
	}
	b, err := json.Marshal(m) // which sorts the keys
	if err != nil || len(b) > upstream.MaxMetadata {
		return ""
	}
	return string(b)
}

// zone returns the name of a zone, or nothing if it is not valid.
func zone(s string) string {
	if !spec.ValidNode(s) {
		return ""
	}
	return strings.Clone(s)
}

// text returns s cut to most bytes, and as valid UTF-8.
func text(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// readElements reads an answer that is an array: elements of at most size bytes, and at most most of them.
func readElements[T any](r io.Reader, size int64, most int) (list []T, err error) {
	item := &remote.BoundedReader{R: r, Left: size}
	d := json.NewDecoder(item)
	switch t, err := d.Token(); {
	case err != nil:
		return nil, unexpected(err)
	case t != json.Delim('['):
		return nil, errors.New("the answer is no JSON array")
	}
	for d.More() {
		item.Left = size
		if len(list) >= most {
			return nil, fmt.Errorf("the answer has more than %d elements", most)
		}
		var e T
		if err := d.Decode(&e); err != nil {
			return nil, unexpected(err)
		}
		list = append(list, e)
	}
	if _, err = d.Token(); err != nil {
		return nil, unexpected(err)
	}
	return list, nil
}
