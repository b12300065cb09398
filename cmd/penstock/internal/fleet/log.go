package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// An Entry says who did what, at KEY/log/TIME-ID. The last maxLog are kept.
type Entry struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	What string    `json:"what"`           // one word, such as drain or publish
	To   string    `json:"to,omitempty"`   // a node or a version
	Text string    `json:"text,omitempty"` // one line
}

// maxLog is how many entries are kept. Up to trimEvery more may be there for a while.
const (
	maxLog    = 1000
	trimEvery = 32
	maxEntry  = 8 << 10
)

func logKey(key string, at time.Time) string {
	return fmt.Sprintf("%s%013d-%s", logPrefix(key), at.UnixMilli(), newID())
}

// Log adds an entry.
func Log(ctx context.Context, c *etcd.Client, key string, e Entry) error {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.By, e.What, e.To, e.Text = shorten(e.By), shorten(e.What), shorten(e.To), shorten(e.Text)
	text, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	if _, err := c.Put(ctx, logKey(key, e.At), text, 0); err != nil {
		return err
	}
	return sometimesTrimLog(ctx, c, key)
}

// sometimesTrimLog is called after every entry.
func sometimesTrimLog(ctx context.Context, c *etcd.Client, key string) error {
	if rand.N(trimEvery) == 0 {
		return trimLog(ctx, c, key, maxLog)
	}
	return nil
}

// trimLog removes all but the latest entries.
func trimLog(ctx context.Context, c *etcd.Client, key string, keep int) error {
	kvs, _, err := c.Prefix(ctx, logPrefix(key))
	if err != nil || len(kvs) <= keep {
		return err
	}
	_, err = c.Do(ctx, etcd.Txn{Then: []etcd.Op{etcd.DeleteRange(logPrefix(key), kvs[len(kvs)-keep].Key)}})
	return err
}

// ReadLog returns the last entries, the latest first. What cannot be read is left out.
func ReadLog(ctx context.Context, c *etcd.Client, key string, most int) ([]Entry, error) {
	kvs, _, err := c.Prefix(ctx, logPrefix(key))
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, kv := range slices.Backward(kvs) {
		if len(list) == most {
			break
		}
		if e, err := ParseEntry(kv.Value); err == nil {
			list = append(list, e)
		}
	}
	return list, nil
}

// ParseEntry reads an entry of the log.
func ParseEntry(text []byte) (Entry, error) {
	var e Entry
	if len(text) > maxEntry {
		return e, fmt.Errorf("an entry of %d bytes; allowed: %d", len(text), maxEntry)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return Entry{}, err
	}
	for _, s := range []*string{&e.By, &e.What, &e.To, &e.Text} {
		*s = shorten(strings.Join(strings.Fields(*s), " "))
	}
	return e, nil
}
