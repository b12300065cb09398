package testfleet

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"time"
)

// An etcdStore is what etcd stores: keys with their history, and leases. Its methods do what one request does.
type etcdStore struct {
	cluster             int64
	revision, compacted int64
	sorted              []string            // keys that there are, or were
	keys                map[string][]etcdKV // every version of a key, oldest first
	history             []etcdKV            // all of them
	leases              map[int64]*etcdLease
	changed             chan struct{} // closed at the next change
	ends                func(*etcdStore, int64)
}

type etcdKV struct {
	Key     []byte `json:"key"`
	Create  int64  `json:"create_revision,string,omitempty"`
	Mod     int64  `json:"mod_revision,string"`
	Version int64  `json:"version,string,omitempty"`
	Value   []byte `json:"value,omitempty"`
	Lease   int64  `json:"lease,string,omitempty"`
}

// gone reports whether the key was deleted.
func (kv *etcdKV) gone() bool { return kv.Version == 0 }

type etcdLease struct {
	ttl   time.Duration
	until time.Time
	timer *time.Timer
	keys  map[string]bool
}

type etcdHeader struct {
	Cluster  int64 `json:"cluster_id,string"`
	Revision int64 `json:"revision,string"`
}

// An etcdError is an error of gRPC as the gateway writes it.
type etcdError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *etcdError) status() int {
	if e.Code == 5 {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

var (
	errNoEtcdLease   = &etcdError{5, "etcdserver: requested lease not found"}
	errNoEtcdKey     = &etcdError{3, "etcdserver: key is not provided"}
	errEtcdTwice     = &etcdError{3, "etcdserver: duplicate key given in txn request"}
	errEtcdOps       = &etcdError{3, "etcdserver: too many operations in txn request"}
	errEtcdCompacted = &etcdError{11, "etcdserver: mvcc: required revision has been compacted"}
	errEtcdFuture    = &etcdError{11, "etcdserver: mvcc: required revision is a future revision"}
)

// mostEtcdOps is the default of --max-txn-ops.
const mostEtcdOps = 128

func newEtcdStore(ends func(*etcdStore, int64)) *etcdStore {
	return &etcdStore{cluster: rand.Int64(), revision: 1, keys: map[string][]etcdKV{}, leases: map[int64]*etcdLease{}, changed: make(chan struct{}), ends: ends}
}

func (s *etcdStore) header() etcdHeader { return etcdHeader{s.cluster, s.revision} }

// within reports whether a key is in the range from key to end. Without an end, that is the one key; "\x00" is no end.
func within(k, key, end []byte) bool {
	if len(end) == 0 {
		return bytes.Equal(k, key)
	}
	return bytes.Compare(k, key) >= 0 && (len(end) == 1 && end[0] == 0 || bytes.Compare(k, end) < 0)
}

// at returns the keys of a range at a revision.
func (s *etcdStore) at(revision int64, key, end []byte) (list []etcdKV) {
	for _, k := range s.sorted[sort.SearchStrings(s.sorted, string(key)):] {
		if !within([]byte(k), key, end) {
			break
		}
		versions := s.keys[k]
		i := len(versions) - 1
		for i >= 0 && versions[i].Mod > revision {
			i--
		}
		if i >= 0 && !versions[i].gone() {
			list = append(list, versions[i])
		}
	}
	return list
}

// last returns a key as it is now; Version 0: it does not exist.
func (s *etcdStore) last(key []byte) etcdKV {
	if v := s.keys[string(key)]; len(v) > 0 && !v[len(v)-1].gone() {
		return v[len(v)-1]
	}
	return etcdKV{Key: key}
}

// events returns the changes of a range from a revision on.
func (s *etcdStore) events(from int64, key, end []byte) (list []etcdEvent) {
	first := sort.Search(len(s.history), func(i int) bool { return s.history[i].Mod >= from })
	for _, kv := range s.history[first:] {
		if !within(kv.Key, key, end) {
			continue
		}
		e := etcdEvent{KV: kv}
		if kv.gone() {
			e.Type = "DELETE"
		}
		list = append(list, e)
	}
	return list
}

type etcdEvent struct {
	Type string `json:"type,omitempty"`
	KV   etcdKV `json:"kv"`
}

type etcdWatchMessage struct {
	Header    etcdHeader  `json:"header"`
	Created   bool        `json:"created,omitempty"`
	Canceled  bool        `json:"canceled,omitempty"`
	Compacted int64       `json:"compact_revision,string,omitempty"`
	Events    []etcdEvent `json:"events,omitempty"`
}

type etcdRange struct {
	Key      []byte `json:"key"`
	End      []byte `json:"range_end"`
	Limit    int64  `json:"limit,string"`
	Revision int64  `json:"revision,string"`
	KeysOnly bool   `json:"keys_only"`
}

type etcdRangeAnswer struct {
	Header etcdHeader `json:"header"`
	KVs    []etcdKV   `json:"kvs,omitempty"`
	More   bool       `json:"more,omitempty"`
	Count  int64      `json:"count,string,omitempty"`
}

func (s *etcdStore) get(in *etcdRange) (any, *etcdError) {
	switch {
	case len(in.Key) == 0:
		return nil, errNoEtcdKey
	case in.Revision > s.revision:
		return nil, errEtcdFuture
	case in.Revision > 0 && in.Revision < s.compacted:
		return nil, errEtcdCompacted
	}
	return s.rangeAt(in, s.revision), nil
}

// rangeAt answers in, at revision now unless it says another one.
func (s *etcdStore) rangeAt(in *etcdRange, now int64) *etcdRangeAnswer {
	if in.Revision > 0 {
		now = in.Revision
	}
	list := s.at(now, in.Key, in.End)
	out := &etcdRangeAnswer{Header: s.header(), Count: int64(len(list))}
	if in.Limit > 0 && int64(len(list)) > in.Limit {
		list, out.More = list[:in.Limit], true
	}
	if in.KeysOnly {
		for i := range list {
			list[i].Value, list[i].Lease = nil, 0
		}
	}
	out.KVs = list
	return out
}

type etcdTxn struct {
	Compare []struct {
		Key     []byte `json:"key"`
		Result  string `json:"result"`
		Target  string `json:"target"`
		Version int64  `json:"version,string"`
		Create  int64  `json:"create_revision,string"`
		Mod     int64  `json:"mod_revision,string"`
		Value   []byte `json:"value"`
	} `json:"compare"`
	Success []etcdOp `json:"success"`
	Failure []etcdOp `json:"failure"`
}

type etcdOp struct {
	Put *struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
		Lease int64  `json:"lease,string"`
	} `json:"request_put"`
	Delete *struct {
		Key []byte `json:"key"`
		End []byte `json:"range_end"`
	} `json:"request_delete_range"`
	Range *etcdRange `json:"request_range"`
}

// size returns about how many bytes the request has.
func (t *etcdTxn) size() (n int) {
	for _, op := range append(t.Success[:len(t.Success):len(t.Success)], t.Failure...) {
		if op.Put != nil {
			n += len(op.Put.Key) + len(op.Put.Value)
		}
	}
	return n
}

// holds reports whether all conditions hold.
func (s *etcdStore) holds(t *etcdTxn) bool {
	for _, c := range t.Compare {
		kv, order := s.last(c.Key), 0
		switch c.Target {
		case "VERSION":
			order = int(kv.Version - c.Version)
		case "CREATE":
			order = int(kv.Create - c.Create)
		case "MOD":
			order = int(kv.Mod - c.Mod)
		case "VALUE":
			if kv.gone() {
				return false
			}
			order = bytes.Compare(kv.Value, c.Value)
		}
		if c.Result == "EQUAL" && order != 0 || c.Result == "GREATER" && order <= 0 {
			return false
		}
	}
	return true
}

// check returns what is wrong with operations.
func (s *etcdStore) check(ops []etcdOp) *etcdError {
	puts := map[string]bool{}
	for _, op := range ops {
		if op.Put != nil {
			if puts[string(op.Put.Key)] {
				return errEtcdTwice
			}
			puts[string(op.Put.Key)] = true
		}
		if op.Put != nil && len(op.Put.Key) == 0 || op.Delete != nil && len(op.Delete.Key) == 0 || op.Range != nil && len(op.Range.Key) == 0 {
			return errNoEtcdKey
		}
	}
	for _, op := range ops {
		for k := range puts {
			if op.Delete != nil && within([]byte(k), op.Delete.Key, op.Delete.End) {
				return errEtcdTwice
			}
		}
	}
	return nil
}

func (s *etcdStore) txn(t *etcdTxn) (any, *etcdError) {
	if max(len(t.Compare), len(t.Success), len(t.Failure)) > mostEtcdOps {
		return nil, errEtcdOps
	}
	for _, ops := range [][]etcdOp{t.Success, t.Failure} {
		if err := s.check(ops); err != nil {
			return nil, err
		}
	}
	succeeded := s.holds(t)
	ops := t.Failure
	if succeeded {
		ops = t.Success
	}
	for _, op := range ops {
		if op.Put != nil && op.Put.Lease != 0 && s.leases[op.Put.Lease] == nil {
			return nil, errNoEtcdLease
		}
	}
	revision, before, answers := s.revision+1, len(s.history), []any{}
	for _, op := range ops {
		switch {
		case op.Put != nil:
			s.put(revision, op.Put.Key, op.Put.Value, op.Put.Lease)
			answers = append(answers, map[string]any{"response_put": struct{}{}})
		case op.Delete != nil:
			n := s.delete(revision, op.Delete.Key, op.Delete.End)
			answers = append(answers, map[string]any{"response_delete_range": map[string]string{"deleted": strconv.Itoa(n)}})
		case op.Range != nil:
			answers = append(answers, map[string]any{"response_range": s.rangeAt(op.Range, revision)})
		}
	}
	if len(s.history) > before {
		s.commit(revision)
	}
	return map[string]any{"header": s.header(), "succeeded": succeeded, "responses": answers}, nil
}

// commit makes a revision the current one, and wakes watches.
func (s *etcdStore) commit(revision int64) {
	s.revision = revision
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *etcdStore) put(revision int64, key, value []byte, lease int64) {
	kv := s.last(key)
	s.detach(&kv)
	if kv.gone() {
		kv.Create = revision
	}
	kv.Mod, kv.Value, kv.Lease = revision, value, lease
	kv.Version++
	if lease != 0 {
		s.leases[lease].keys[string(key)] = true
	}
	s.append(kv)
}

func (s *etcdStore) delete(revision int64, key, end []byte) (n int) {
	for _, kv := range s.at(revision, key, end) {
		s.detach(&kv)
		s.append(etcdKV{Key: kv.Key, Mod: revision})
		n++
	}
	return n
}

func (s *etcdStore) detach(kv *etcdKV) {
	if l := s.leases[kv.Lease]; l != nil {
		delete(l.keys, string(kv.Key))
	}
}

func (s *etcdStore) append(kv etcdKV) {
	k := string(kv.Key)
	if s.keys[k] == nil {
		i, _ := slices.BinarySearch(s.sorted, k)
		s.sorted = slices.Insert(s.sorted, i, k)
	}
	s.keys[k] = append(s.keys[k], kv)
	s.history = append(s.history, kv)
}

// compact makes older revisions unknown.
func (s *etcdStore) compact(in *struct {
	Revision int64 `json:"revision,string"`
}) (any, *etcdError) {
	switch {
	case in.Revision > s.revision:
		return nil, errEtcdFuture
	case in.Revision <= s.compacted:
		return nil, errEtcdCompacted
	}
	s.compacted = in.Revision
	return map[string]any{"header": s.header()}, nil
}

type etcdLeaseRequest struct {
	ID  int64 `json:"ID,string"`
	TTL int64 `json:"TTL,string"`
}

type etcdLeaseAnswer struct {
	Header etcdHeader `json:"header"`
	ID     int64      `json:"ID,string"`
	TTL    int64      `json:"TTL,string,omitempty"`
}

func (s *etcdStore) grant(in *etcdLeaseRequest) (any, *etcdError) {
	id := rand.Int64()
	l := &etcdLease{ttl: time.Duration(max(in.TTL, 1)) * time.Second, keys: map[string]bool{}}
	s.leases[id] = l
	s.renew(id, l)
	return &etcdLeaseAnswer{s.header(), id, int64(l.ttl / time.Second)}, nil
}

// renew makes a lease last for its whole time from now on.
func (s *etcdStore) renew(id int64, l *etcdLease) {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.until = time.Now().Add(l.ttl)
	l.timer = time.AfterFunc(l.ttl, func() { s.ends(s, id) })
}

func (s *etcdStore) keepAlive(in *etcdLeaseRequest) (any, *etcdError) {
	out := &etcdLeaseAnswer{Header: s.header(), ID: in.ID}
	if l := s.leases[in.ID]; l != nil {
		s.renew(in.ID, l)
		out.TTL = int64(l.ttl / time.Second)
	}
	return map[string]any{"result": out}, nil
}

// revoke ends a lease, with its keys, and reports whether there was one.
func (s *etcdStore) revoke(id int64) bool {
	l := s.leases[id]
	if l == nil {
		return false
	}
	l.timer.Stop()
	delete(s.leases, id)
	revision := s.revision + 1
	for _, k := range slices.Sorted(maps.Keys(l.keys)) {
		s.append(etcdKV{Key: []byte(k), Mod: revision})
	}
	if len(l.keys) > 0 {
		s.commit(revision)
	}
	return true
}

func (s *etcdStore) stopLeases() {
	for _, l := range s.leases {
		l.timer.Stop()
	}
}

func (s *etcdStore) startLeases() {
	for id, l := range s.leases {
		s.renew(id, l)
	}
}

// endLeases ends the leases whose time is over.
func (s *etcdStore) endLeases() {
	for id, l := range s.leases {
		if !time.Now().Before(l.until) {
			s.revoke(id)
		}
	}
}
