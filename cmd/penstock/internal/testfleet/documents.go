package testfleet

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// Documents is an HTTP server of JSON documents, by path and query: lists of members, or services of Nomad, whose server was not available. It
// follows what Nomad documents of blocking queries (index, wait).
type Documents struct {
	*fake
	documents map[string]string
	index     uint64
	Unchanged int // answers with 304
}

// NewDocuments starts a server without documents.
func NewDocuments(tb testing.TB) *Documents { return NewMemoryDocuments(tb, nil) }

// NewMemoryDocuments starts one in a network in memory; nil: the real one.
func NewMemoryDocuments(tb testing.TB, network *testnet.Network) *Documents {
	d := &Documents{documents: map[string]string{}, index: 10}
	d.fake = newFake(tb, network, false, d.handle)
	return d
}

// Set replaces a document. The name is a path, and a query if it is asked for with one besides index, wait and stale.
func (d *Documents) Set(name, document string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.documents[name] = document
	d.index++
	d.touch()
}

func (d *Documents) handle(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	d.mu.Lock()
	after, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, _ := time.ParseDuration(q.Get("wait"))
	if !d.wait(r, wait, func() bool { return after > 0 && d.index == after }) {
		d.mu.Unlock()
		return
	}
	if fault := d.fault; fault != nil {
		d.mu.Unlock()
		fault(w, r)
		return
	}
	defer d.mu.Unlock()
	for _, name := range []string{"index", "wait", "stale"} {
		q.Del(name)
	}
	name := r.URL.Path
	if len(q) > 0 {
		name += "?" + q.Encode()
	}
	document, ok := d.documents[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("X-Nomad-Index", strconv.FormatUint(d.index, 10))
	h.Set("X-Nomad-KnownLeader", "true")
	h.Set("X-Nomad-LastContact", "0")
	h.Set("Content-Type", "application/json; charset=utf-8")
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(document)))
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		d.Unchanged++
		w.WriteHeader(http.StatusNotModified)
		return
	}
	fmt.Fprint(w, document)
}
