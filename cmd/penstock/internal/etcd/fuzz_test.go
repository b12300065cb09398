package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// FuzzWatch: whatever a stream says, changes come in order, and the end is an error.
func FuzzWatch(f *testing.F) {
	for _, s := range []string{
		created, created + created, strings.Replace(created, `"revision"`, `"x"`, 1) + created, `{"error":{"grpc_code":16,"message":"x"}}`, `{"result":{"canceled":true,"compact_revision":"9"}}`,
		created + `{"result":{"header":{"revision":"9"}}}{"result":{"header":{"revision":"12"},"events":[{"kv":{"key":"L2EvMA==","value":"eA==","mod_revision":"10"}},{"type":"DELETE","kv":{"key":"L2EvMA==","mod_revision":"11"}}]}}`,
		created + `{"result":{"fragment":true,"events":[{"kv":{"key":"L2EvMA==","mod_revision":"9"}}]}}{"result":{"events":[{"kv":{"key":"L2EvMQ==","mod_revision":"9"}}]}}`,
		`{"result":null}`, `{"result":{"header":{"revision":9223372036854775808}}}`, "[", "<html>",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := &Client{cfg: Config{MaxMessage: 1 << 16, MaxBytes: 1 << 16, Silence: time.Hour, Timeout: time.Hour, Renew: time.Hour}, probing: make(chan struct{}, 1)}
		c.remote, _ = remote.New(remote.Config{Servers: []string{"http://127.0.0.1:1"}})
		c.seen.revision = 7
		c.probed.at = time.Now() // so that nothing is asked
		last := int64(7)
		w := &watch{c: c, prefix: "/a/", revision: last, stream: newStream(io.MultiReader(bytes.NewReader(body)), 1<<16), update: func(events []Event, revision int64) {
			for _, e := range events {
				if e.KV.Mod <= 7 || e.KV.Mod > revision || e.KV.Mod < last && len(events) == 1 {
					t.Errorf("a change at %d, up to %d, after %d", e.KV.Mod, revision, last)
				}
			}
			if revision < last {
				t.Errorf("revision %d after %d", revision, last)
			}
			last = revision
			change(events, revision)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		go w.stream.read(ctx)
		err := w.run(ctx)
		cancel()
		for range w.stream.messages {
		}
		if err == nil || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%q", err)
		}
	})
}

// FuzzAnswer: whatever a server answers to a request, nothing breaks, and errors stand in one line.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{goodList, `{"code":5,"message":"x"}`, `{"message":" "}`, `{"error":{"code":5,"message":"x"}}`, `{"header":{"revision":"1"},"succeeded":true,"responses":[{"response_range":{"kvs":[{}]}}]}`, `{"result":{"TTL":"5"}}`, "<html>"} {
		f.Add(200, []byte(s))
		f.Add(500, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			status = 500
		}
		err := decodeError(status, body)
		var e *Error
		if !errors.As(err, &e) || e.Message == "" || strings.ContainsAny(e.Message, "\n\r") {
			t.Errorf("%q", err)
		}
		for _, out := range []any{new(rangeResponse), new(txnResponse), new(leaseResponse)} {
			if json.Unmarshal(body, out) != nil {
				continue
			}
			if r, ok := out.(*rangeResponse); ok {
				kvs(r.KVs)
			}
		}
	})
}
