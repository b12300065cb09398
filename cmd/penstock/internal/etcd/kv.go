package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

type rangeRequest struct {
	Key      []byte    `json:"key"`
	End      []byte    `json:"range_end,omitempty"`
	Limit    int64Text `json:"limit,omitempty"`
	Revision int64Text `json:"revision,omitempty"`
	KeysOnly bool      `json:"keys_only,omitempty"`
}

type rangeResponse struct {
	Header header    `json:"header"`
	KVs    []wireKV  `json:"kvs"`
	More   bool      `json:"more"`
	Count  int64Text `json:"count"`
}

func (r *rangeResponse) header() header { return r.Header }

// Get returns a key, with Version 0 if it does not exist, and the revision of the answer.
func (c *Client) Get(ctx context.Context, key string) (KV, int64, error) {
	var out rangeResponse
	if err := c.call(ctx, "/v3/kv/range", rangeRequest{Key: []byte(key)}, &out, true); err != nil {
		return KV{}, 0, err
	}
	if len(out.KVs) == 0 {
		return KV{Key: key}, int64(out.Header.Revision), nil
	}
	return out.KVs[0].kv(), int64(out.Header.Revision), nil
}

// Prefix returns all keys that begin with prefix, in order, as they were at the returned revision.
func (c *Client) Prefix(ctx context.Context, prefix string) ([]KV, int64, error) {
	return c.Range(ctx, beginning(prefix), PrefixEnd(prefix))
}

// Range returns the keys from key up to end, without end, in order, as they were at the returned revision. It
// asks for them in pages. If an old page is compacted while the next ones are read, the error is a
// CompactedError. A range that is larger than Config.MaxKeys or Config.MaxBytes is an error that wraps
// remote.ErrTooLarge.
func (c *Client) Range(ctx context.Context, key, end string) (all []KV, revision int64, err error) {
	limit, bytes := c.cfg.PageKeys, int64(0)
	for {
		in := rangeRequest{Key: []byte(key), End: []byte(end), Limit: int64Text(limit), Revision: int64Text(revision)}
		var out rangeResponse
		err := c.call(ctx, "/v3/kv/range", in, &out, true)
		if errors.Is(err, remote.ErrTooLarge) && limit > 1 {
			limit = max(1, limit/8)
			continue
		}
		if e := (*Error)(nil); errors.As(err, &e) && e.Code == codeOutOfRange {
			return nil, 0, &CompactedError{}
		}
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = int64(out.Header.Revision)
		}
		for _, k := range out.KVs {
			bytes += int64(len(k.Key) + len(k.Value))
		}
		all = append(all, kvs(out.KVs)...)
		if n := int64(out.Count); n > int64(c.cfg.MaxKeys) || len(all) > c.cfg.MaxKeys {
			return nil, 0, fmt.Errorf("%w: %d keys begin with %q, more than %d", remote.ErrTooLarge, n, in.Key, c.cfg.MaxKeys)
		}
		if bytes > c.cfg.MaxBytes {
			return nil, 0, fmt.Errorf("%w: the values are larger than %d bytes", remote.ErrTooLarge, c.cfg.MaxBytes)
		}
		if !out.More || len(out.KVs) == 0 {
			return all, revision, nil
		}
		last := all[len(all)-1].Key
		if last < key {
			return nil, 0, errors.New("the answer is not in order")
		}
		key = last + "\x00"
	}
}

// Put sets a key. With a lease that is not 0, the key goes when the lease ends.
func (c *Client) Put(ctx context.Context, key string, value []byte, lease LeaseID) (revision int64, err error) {
	r, err := c.Do(ctx, Txn{Then: []Op{Put(key, value, lease)}})
	return r.Revision, err
}

// Delete removes a key, and returns how many that were: 0 or 1.
func (c *Client) Delete(ctx context.Context, key string) (deleted int64, err error) {
	r, err := c.Do(ctx, Txn{Then: []Op{Delete(key)}})
	if err != nil {
		return 0, err
	}
	return r.Answers[0].Deleted, nil
}
