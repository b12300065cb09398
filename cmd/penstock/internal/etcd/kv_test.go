package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

func TestKeys(t *testing.T) {
	_, c := start(t)
	ctx := t.Context()
	c.cfg.PageKeys = 3
	if kv, _, err := c.Get(ctx, "/a/0"); kv.Version != 0 || err != nil {
		t.Errorf("%+v, %v", kv, err)
	}
	var last int64
	for i := range 10 {
		last = mustPut(t, c, fmt.Sprintf("/a/%d", i), strings.Repeat("x", i), 0)
	}
	mustPut(t, c, "/b", "", 0)
	kv, revision, err := c.Get(ctx, "/a/9")
	if err != nil || kv.Mod != last || kv.Create != last || kv.Version != 1 || len(kv.Value) != 9 || revision != last+1 {
		t.Errorf("%+v, %d, %v", kv, revision, err)
	}
	all, revision, err := c.Prefix(ctx, "/a/")
	if err != nil || len(all) != 10 || all[3].Key != "/a/3" || revision != last+1 {
		t.Errorf("%v, %d, %v", all, revision, err)
	}
	if all, _, err := c.Prefix(ctx, ""); err != nil || len(all) != 11 {
		t.Errorf("%v, %v", all, err)
	}
	if n, err := c.Delete(ctx, "/a/0"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := c.Delete(ctx, "/a/0"); n != 0 || err != nil {
		t.Error(n, err)
	}

	c.cfg.MaxKeys = 5
	if _, _, err := c.Prefix(ctx, "/a/"); !errors.Is(err, remote.ErrTooLarge) {
		t.Error(err)
	}
	c.cfg.MaxKeys, c.cfg.MaxBytes = 100, 20
	if _, _, err := c.Prefix(ctx, "/a/"); !errors.Is(err, remote.ErrTooLarge) {
		t.Error(err)
	}
}

// Pages become smaller if their answers are too large, and one value that is too large is an error.
func TestLargeAnswers(t *testing.T) {
	_, c := start(t, "-max-request-bytes", "8000000")
	ctx := t.Context()
	for i := range 8 {
		mustPut(t, c, fmt.Sprintf("/big/%d", i), strings.Repeat("x", 500_000), 0)
	}
	c.cfg.MaxMessage = 1_000_000
	all, _, err := c.Prefix(ctx, "/big/")
	if err != nil || len(all) != 8 {
		t.Errorf("%d, %v", len(all), err)
	}
	mustPut(t, c, "/big/x", strings.Repeat("x", 5<<20), 0)
	if _, _, err := c.Prefix(ctx, "/big/"); !errors.Is(err, remote.ErrTooLarge) {
		t.Error(err)
	}
}

func TestTransactions(t *testing.T) {
	_, c := start(t)
	ctx := t.Context()
	claim := Txn{If: []Compare{Absent("/lock")}, Then: []Op{Put("/lock", []byte("a"), 0), Get("/lock")}, Else: []Op{Get("/lock"), GetPrefix("/", 10)}}
	r, err := c.Do(ctx, claim)
	if err != nil || !r.Succeeded || len(r.Answers) != 2 || string(r.Answers[1].KVs[0].Value) != "a" {
		t.Fatalf("%+v, %v", r, err)
	}
	mod := r.Revision
	r, err = c.Do(ctx, claim)
	if err != nil || r.Succeeded || r.Answers[0].KVs[0].Mod != mod || len(r.Answers[1].KVs) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, test := range []struct {
		name string
		c    Compare
		want bool
	}{
		{"mod", ModIs("/lock", mod), true}, {"older mod", ModIs("/lock", mod-1), false}, {"create", CreateIs("/lock", mod), true},
		{"version", VersionIs("/lock", 1), true}, {"other version", VersionIs("/lock", 2), false},
		{"value", ValueIs("/lock", []byte("a")), true}, {"other value", ValueIs("/lock", []byte("b")), false},
		{"present", Present("/lock"), true}, {"not present", Present("/other"), false}, {"no mod", ModIs("/other", 0), true},
	} {
		if r, err := c.Do(ctx, Txn{If: []Compare{test.c}}); err != nil || r.Succeeded != test.want {
			t.Errorf("%s: %+v, %v", test.name, r, err)
		}
	}
	r, err = c.Do(ctx, Txn{Then: []Op{DeletePrefix("/lo"), DeleteRange("/a", "/z")}})
	if err != nil || r.Answers[0].Deleted != 1 || r.Answers[1].Deleted != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLeases(t *testing.T) {
	_, c := start(t)
	ctx := t.Context()
	id, err := c.Grant(ctx, 60*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, c, "/leased", "x", id)
	if ttl, err := c.KeepAlive(ctx, id); ttl != 60*time.Second || err != nil {
		t.Error(ttl, err)
	}
	if kv, _, _ := c.Get(ctx, "/leased"); kv.Lease != id {
		t.Errorf("%+v", kv)
	}
	if err := c.Revoke(ctx, id); err != nil {
		t.Error(err)
	}
	if kv, _, _ := c.Get(ctx, "/leased"); kv.Version != 0 {
		t.Errorf("%+v", kv)
	}
	if err := c.Revoke(ctx, id); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
	if _, err := c.KeepAlive(ctx, id); !errors.Is(err, ErrNoLease) {
		t.Error(err)
	}
}
