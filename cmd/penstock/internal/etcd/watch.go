package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

var (
	// errRenew ends a watch that was silent for so long that it is made again, to be sure that it still works.
	errRenew = errors.New("the watch was silent for so long that it is renewed")
	// errRestored ends a watch when an older revision is believed: see StaleError.
	errRestored = errors.New("the cluster was restored from a backup")
	errSilent   = errors.New("no answer in time")
	// errWentBack ends a watch of which a change comes too late: others may have been missed, too.
	errWentBack = errors.New("the watch went back")
)

// In a second, a watch may have maxIdle messages without a change, where servers report progress much less often; and reads
// not much more than maxBusy changes.
const (
	maxIdle = 1000
	maxBusy = 20_000
)

type watchRequest struct {
	Create struct {
		Key      []byte    `json:"key"`
		End      []byte    `json:"range_end"`
		Start    int64Text `json:"start_revision"`
		Progress bool      `json:"progress_notify"`
		Fragment bool      `json:"fragment"`
	} `json:"create_request"`
}

// watchMessage is one message of the stream: {"result": {...}}, or {"error": {...}}.
type watchMessage struct {
	Result *watchResponse  `json:"result"`
	Error  json.RawMessage `json:"error"`
}

type watchResponse struct {
	Header    header    `json:"header"`
	Created   bool      `json:"created"`
	Canceled  bool      `json:"canceled"`
	Reason    string    `json:"cancel_reason"`
	Compacted int64Text `json:"compact_revision"`
	Fragment  bool      `json:"fragment"` // more of this revision follows
	Events    []struct {
		Type string `json:"type"` // absent: PUT
		KV   wireKV `json:"kv"`
	} `json:"events"`
}

// Watch calls update with the changes after a revision of all keys that begin with prefix, in order, and the
// revision up to which they are complete. It calls update without events, too: when the watch begins, with
// the revision that it was given, and when the server reports its progress. All changes of one transaction
// are in one call.
//
// Watch returns when ctx ends or the watch does, for which there are many reasons: the connection broke; the
// server does not answer any more; the changes after the revision have been compacted (CompactedError). The
// caller goes on from the last revision that update had, or from a new list; Follow does all that.
func (c *Client) Watch(ctx context.Context, prefix string, revision int64, update func([]Event, int64)) error {
	n := int(c.current.Load())
	err := c.watchServer(ctx, n, prefix, revision, update)
	var compacted *CompactedError
	if err != nil && ctx.Err() == nil && !errors.As(err, &compacted) && !errors.Is(err, errRenew) {
		c.failOver(n)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *Client) watchServer(ctx context.Context, n int, prefix string, revision int64, update func([]Event, int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var in watchRequest
	in.Create.Key, in.Create.End = []byte(beginning(prefix)), []byte(PrefixEnd(prefix))
	in.Create.Start, in.Create.Progress, in.Create.Fragment = int64Text(revision+1), true, true
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	token, err := c.tokenInTime(ctx, n)
	if err != nil {
		return err
	}
	r, err := c.request(ctx, n, "/v3/watch", token, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Grpc-Metadata-Hasleader", "true") // a server without a leader ends the watch
	slow := time.AfterFunc(c.cfg.Timeout, cancel)
	res, err := c.remote.Do(r)
	if !slow.Stop() && err != nil {
		err = errSilent
	}
	if err != nil {
		return c.withServer(n, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, err := remote.Read(res.Body, c.cfg.MaxMessage)
		if err == nil {
			err = decodeError(res.StatusCode, text)
		}
		c.badToken(err, token)
		return c.withServer(n, err)
	}
	w := &watch{c: c, server: n, prefix: prefix, token: token, epoch: c.epoch(), revision: revision, update: update, stream: newStream(res.Body, c.cfg.MaxMessage)}
	go w.stream.read(ctx)
	err = w.run(ctx)
	cancel()
	for range w.stream.messages { // until the reader has ended
	}
	return err
}

func (c *Client) tokenInTime(ctx context.Context, n int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.token(ctx, n)
}

// A watch is one stream of changes.
type watch struct {
	c        *Client
	server   int
	prefix   string
	token    string
	epoch    int
	stream   *stream
	revision int64 // up to which everything was given to update
	update   func([]Event, int64)

	created bool
	pending []Event // of a message that came in fragments
	size    int64   // of pending
	second  time.Time
	idle    int // messages without a change in the second that began at second
	busy    int // changes in it
}

// run handles messages until something fails. A server that is silent is asked whether it still works.
func (w *watch) run(ctx context.Context) error {
	began := time.Now()
	silence := w.c.cfg.Silence
	timer := time.NewTimer(w.c.cfg.Timeout)
	defer timer.Stop()
	for {
		select {
		case m, ok := <-w.stream.messages:
			if !ok {
				return w.c.withServer(w.server, fmt.Errorf("the watch ended: %w", w.stream.err))
			}
			if err := w.message(ctx, m); err != nil {
				return err
			}
			began = time.Now()
		case <-timer.C:
			switch {
			case !w.created:
				return w.c.withServer(w.server, errSilent)
			case time.Since(began) >= w.c.cfg.Renew:
				return errRenew
			}
			if err := w.probe(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Reset(silence + rand.N(silence/2+1))
	}
}

// probe asks the server whether it still works, and whether it is still at least where it was.
func (w *watch) probe(ctx context.Context) error {
	if err := w.c.probe(ctx, w.server, beginning(w.prefix)); err != nil {
		return err
	}
	if w.c.epoch() != w.epoch {
		return errRestored
	}
	return nil
}

// message handles a message.
func (w *watch) message(ctx context.Context, m watchMessage) error {
	if m.Result == nil {
		err := decodeError(0, append(append([]byte(`{"error":`), orNull(m.Error)...), '}'))
		w.c.badToken(err, w.token)
		return w.c.withServer(w.server, err)
	}
	r := m.Result
	if err := w.pace(ctx, len(r.Events)); err != nil {
		return err
	}
	if r.Canceled {
		if r.Compacted > 0 {
			return &CompactedError{int64(r.Compacted)}
		}
		w.c.forget(w.token) // the reason may be that it has expired
		return w.c.withServer(w.server, fmt.Errorf("the server canceled the watch: %s", remote.Line([]byte(r.Reason))))
	}
	if r.Created && !w.created {
		if err := w.begin(ctx, r); err != nil {
			return err
		}
		if len(r.Events) == 0 {
			w.update(nil, w.revision)
			return nil
		}
	}
	if !w.created {
		return w.c.withServer(w.server, errors.New("the answer is not that of a watch"))
	}
	if len(r.Events) == 0 && !r.Fragment && len(w.pending) == 0 {
		return w.progress(int64(r.Header.Revision))
	}
	return w.changes(r)
}

// begin handles the first message. A server's revision may be behind, because a watch begins where this server
// is; then it must be a server that catches up, and not one that was restored from a backup.
func (w *watch) begin(ctx context.Context, r *watchResponse) error {
	w.created = true
	if int64(r.Header.Revision) >= w.revision && w.c.sameCluster(r.Header) {
		return nil
	}
	return w.probe(ctx)
}

// pace bounds how much a server can make its client do: messages without changes are an error if there are very many, and
// changes are read more slowly.
func (w *watch) pace(ctx context.Context, changes int) error {
	now := time.Now()
	if now.Sub(w.second) > time.Second {
		w.second, w.idle, w.busy = now, 0, 0
	}
	if changes == 0 {
		w.idle++
	}
	if w.idle > maxIdle {
		return w.c.withServer(w.server, fmt.Errorf("more than %d messages without a change in a second", maxIdle))
	}
	if w.busy += changes; w.busy > maxBusy {
		return remote.Sleep(ctx, w.second.Add(time.Second).Sub(now))
	}
	return nil
}

// progress handles a message without changes: everything up to the revision has been sent.
func (w *watch) progress(revision int64) error {
	if revision > w.revision {
		w.revision = revision
		w.update(nil, revision)
	}
	return nil
}

// changes handles a message with changes. Its revision is not that of its last change: a server that catches
// up names its own.
func (w *watch) changes(r *watchResponse) error {
	for i := range r.Events {
		e := &r.Events[i]
		if int64(e.KV.Mod) <= w.revision || len(w.pending) > 0 && int64(e.KV.Mod) < w.pending[len(w.pending)-1].KV.Mod {
			return w.c.withServer(w.server, fmt.Errorf("%w to revision %d", errWentBack, int64(e.KV.Mod)))
		}
		w.pending = append(w.pending, Event{e.Type == "DELETE", e.KV.kv()})
		w.size += int64(len(e.KV.Key) + len(e.KV.Value))
	}
	if w.size > w.c.cfg.MaxBytes {
		return w.c.withServer(w.server, fmt.Errorf("%w: changes of more than %d bytes", remote.ErrTooLarge, w.c.cfg.MaxBytes))
	}
	if r.Fragment {
		return nil
	}
	events := w.pending
	w.pending, w.size = nil, 0
	if len(events) == 0 {
		return nil
	}
	w.revision = events[len(events)-1].KV.Mod
	w.update(events, w.revision)
	return nil
}

func orNull(b []byte) []byte {
	if len(b) == 0 {
		return []byte("null")
	}
	return b
}
