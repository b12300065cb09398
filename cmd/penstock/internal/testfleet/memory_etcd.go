package testfleet

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// A MemoryEtcd stands for an etcd server in a bubble of testing/synctest, where leases end, and clients give up, without anybody having
// waited. It answers what the JSON gateway answers to the requests of package etcd, but has no users, no TLS, no fragments of large messages,
// and no peers. TestLikeEtcd of package etcd compares it with a real one.
type MemoryEtcd struct {
	URL string // of its clients, on its network

	tb       testing.TB
	network  *testnet.Network
	largest  int           // bytes of the keys and values of a request
	progress time.Duration // of a watch without changes, after which its progress is told

	mu     sync.Mutex
	store  *etcdStore
	paused chan struct{} // closed by Resume; nil: the server is not paused
	server *http.Server  // nil: it was killed

	serving sync.WaitGroup
}

const memoryEtcdAddress = "etcd:2379"

// NewMemoryEtcd starts a server without keys. It is killed when the test ends.
func NewMemoryEtcd(tb testing.TB, network *testnet.Network) *MemoryEtcd {
	tb.Helper()
	e := &MemoryEtcd{URL: "http://" + memoryEtcdAddress, tb: tb, network: network, largest: 3 << 19, progress: 10 * time.Minute}
	e.store = newEtcdStore(e.leaseEnds)
	e.start()
	tb.Cleanup(e.Kill)
	return e
}

// SetLargest sets how many bytes a request may have; see --max-request-bytes of etcd.
func (e *MemoryEtcd) SetLargest(n int) { e.largest = n }

// SetProgress sets after which time the progress of a watch without changes is told; see --watch-progress-notify-interval of etcd.
func (e *MemoryEtcd) SetProgress(d time.Duration) { e.progress = d }

func (e *MemoryEtcd) start() {
	e.tb.Helper()
	l, err := e.network.Listen(memoryEtcdAddress)
	if err != nil {
		e.tb.Fatal(err)
	}
	s := new(http.Server)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serve(s, w, r) })
	e.mu.Lock()
	e.server = s
	e.mu.Unlock()
	e.serving.Go(func() { s.Serve(l) })
}

// Kill ends the server at once. What it has answered stays for Restart; leases wait.
func (e *MemoryEtcd) Kill() {
	e.mu.Lock()
	s := e.server
	e.server = nil
	e.store.stopLeases()
	if e.paused != nil {
		close(e.paused)
		e.paused = nil
	}
	e.mu.Unlock()
	if s != nil {
		s.Close()
		e.serving.Wait()
	}
}

// Restart starts the server again, with the same keys. Leases last for their whole time from now on. A server that runs is killed.
func (e *MemoryEtcd) Restart() {
	e.tb.Helper()
	e.Kill()
	e.mu.Lock()
	e.store.startLeases()
	e.mu.Unlock()
	e.start()
}

// RestartEmpty is Restart with another cluster, which has no keys.
func (e *MemoryEtcd) RestartEmpty() {
	e.tb.Helper()
	e.Kill()
	e.mu.Lock()
	e.store = newEtcdStore(e.leaseEnds)
	e.mu.Unlock()
	e.start()
}

// Pause stops the server: its connections stay, and nobody answers. That is how a partition looks.
func (e *MemoryEtcd) Pause() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused == nil {
		e.paused = make(chan struct{})
	}
}

// Resume continues a server after Pause.
func (e *MemoryEtcd) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused != nil {
		close(e.paused)
		e.paused = nil
		e.store.endLeases()
	}
}

// leaseEnds is called when the time of a lease is over.
func (e *MemoryEtcd) leaseEnds(s *etcdStore, id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.store == s && e.server != nil && e.paused == nil {
		s.revoke(id)
	}
}

// lock waits until the server is not paused, and locks e.mu. It reports false, without a lock, if the server was killed or the client has left.
func (e *MemoryEtcd) lock(s *http.Server, r *http.Request) bool {
	e.mu.Lock()
	for e.server == s && e.paused != nil {
		resumed := e.paused
		e.mu.Unlock()
		select {
		case <-resumed:
		case <-r.Context().Done():
			return false
		}
		e.mu.Lock()
	}
	if e.server != s {
		e.mu.Unlock()
		return false
	}
	return true
}

func (e *MemoryEtcd) serve(s *http.Server, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	lock := func() bool { return e.lock(s, r) }
	select {
	case <-time.After(time.Millisecond): // so that one thing is later than another, as it always is
	case <-r.Context().Done():
		return
	}
	if r.URL.Path == "/v3/watch" {
		e.watch(w, r, body, lock)
		return
	}
	if !lock() {
		panic(http.ErrAbortHandler)
	}
	out, failed := e.answer(r.URL.Path, body)
	e.mu.Unlock()
	status := http.StatusOK
	if failed != nil {
		out, status = failed, failed.status()
	}
	text, err := json.Marshal(out)
	if err != nil {
		e.tb.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(text)
}

// answer returns the answer to a request. The caller holds e.mu.
func (e *MemoryEtcd) answer(path string, body []byte) (out any, failed *etcdError) {
	switch path {
	case "/v3/kv/range":
		return call(body, e.store.get)
	case "/v3/kv/txn":
		return call(body, func(in *etcdTxn) (any, *etcdError) {
			if in.size() > e.largest {
				return nil, &etcdError{Code: 3, Message: "etcdserver: request is too large"}
			}
			return e.store.txn(in)
		})
	case "/v3/kv/compaction":
		return call(body, e.store.compact)
	case "/v3/lease/grant":
		return call(body, e.store.grant)
	case "/v3/lease/keepalive":
		return call(body, e.store.keepAlive)
	case "/v3/lease/revoke":
		return call(body, func(in *etcdLeaseRequest) (any, *etcdError) {
			if !e.store.revoke(in.ID) {
				return nil, errNoEtcdLease
			}
			return map[string]any{"header": e.store.header()}, nil
		})
	}
	return nil, &etcdError{Code: 5, Message: "Not Found"}
}

func call[T any](body []byte, do func(*T) (any, *etcdError)) (any, *etcdError) {
	var in T
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, &etcdError{Code: 3, Message: err.Error()}
	}
	return do(&in)
}

// watch tells a client of changes until it leaves. lock locks e.mu, unless that is over.
func (e *MemoryEtcd) watch(w http.ResponseWriter, r *http.Request, body []byte, lock func() bool) {
	var in struct {
		Create struct {
			Key   []byte `json:"key"`
			End   []byte `json:"range_end"`
			Start int64  `json:"start_revision,string"`
		} `json:"create_request"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		e.tb.Error(err)
		return
	}
	out := json.NewEncoder(w)
	send := func(m etcdWatchMessage) {
		out.Encode(map[string]any{"result": m})
		w.(http.Flusher).Flush()
	}
	if !lock() {
		return
	}
	m, next := etcdWatchMessage{Header: e.store.header(), Created: true}, in.Create.Start
	e.mu.Unlock()
	for send(m); !m.Canceled; {
		if !lock() {
			return
		}
		s := e.store
		m = etcdWatchMessage{Header: s.header()}
		if next < s.compacted {
			m.Canceled, m.Compacted = true, s.compacted
		} else {
			m.Events = s.events(next, in.Create.Key, in.Create.End)
		}
		next = max(next, s.revision+1) // a watch may begin in the future
		changed := s.changed
		e.mu.Unlock()
		if m.Canceled || len(m.Events) > 0 {
			send(m)
			continue
		}
		select {
		case <-changed:
		case <-time.After(e.progress):
			send(m)
		case <-r.Context().Done():
			return
		}
	}
	<-r.Context().Done() // the stream could have other watches
}
