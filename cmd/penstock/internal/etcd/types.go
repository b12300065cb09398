package etcd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// KV is a key with its value.
type KV struct {
	Key     string
	Value   []byte
	Create  int64 // revision of its creation
	Mod     int64 // revision of its last change
	Version int64 // number of changes since its creation
	Lease   int64 // 0: none
}

// An Event is a change of a key.
type Event struct {
	Delete bool // KV has only Key and Mod then
	KV     KV
}

// LeaseID identifies a lease.
type LeaseID = int64

// NoLimit is for the end of a range: all keys from its beginning on.
const NoLimit = "\x00"

// PrefixEnd returns the end of the range of all keys that begin with prefix.
func PrefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return NoLimit
}

// beginning returns the first key of a prefix's range. An empty key is not allowed; all keys begin at "\x00".
func beginning(prefix string) string {
	if prefix == "" {
		return "\x00"
	}
	return prefix
}

// CompactedError is returned when what was asked for has been compacted.
type CompactedError struct {
	Revision int64 // the oldest that there is; 0: the server did not say
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("the revision has been compacted; the oldest is %d", e.Revision)
}

// StaleError is returned when a server answers with an older revision than one that was seen before, or for
// another cluster: it was restored from a backup, or its address is wrong.
type StaleError struct {
	Server     string
	Have, Seen int64
	Other      bool      // another cluster
	Until      time.Time // when it is believed, if no server says otherwise
}

func (e *StaleError) Error() string {
	what := fmt.Sprintf("answers with revision %d, but %d was seen before", e.Have, e.Seen)
	if e.Other {
		what = "is of another cluster than before"
	}
	return fmt.Sprintf("%s %s: was it restored from a backup? It is believed from %s on, if no server says otherwise", e.Server, what, e.Until.UTC().Format(time.TimeOnly+"Z"))
}

// An Error is an error that a server answered. Code is a status code of gRPC.
type Error struct {
	Status  int // of HTTP; 0: within a stream
	Code    int
	Message string // on one line
}

func (e *Error) Error() string { return e.Message }

// Refused reports whether the server has turned the request down, so that it was not done and never will be. Of other
// errors, such as that the leader has changed, nobody knows.
func (e *Error) Refused() bool {
	switch e.Code {
	case codeInvalidArgument, codeNotFound, codePermissionDenied, codeResourceExhausted, codeFailedPrecondition, codeOutOfRange, codeUnauthenticated:
		return true
	}
	return e.Code == 0 && e.Status >= 400 && e.Status < 500
}

// The status codes of gRPC that mean something here.
const (
	codeInvalidArgument    = 3 // also: a token of an older revision of users and roles, or none
	codeNotFound           = 5
	codePermissionDenied   = 7
	codeResourceExhausted  = 8 // too many requests, or too large ones, or the database is full
	codeFailedPrecondition = 9
	codeOutOfRange         = 11 // compacted, or a revision in the future
	codeUnauthenticated    = 16
)

// int64Text is a number that the gateway writes as a string.
type int64Text int64

func (n *int64Text) UnmarshalJSON(b []byte) error {
	if len(b) >= 2 && b[0] == '"' {
		b = b[1 : len(b)-1]
	}
	v, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("%.30q is not a number of 64 bits", b)
	}
	*n = int64Text(v)
	return nil
}

func (n int64Text) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatInt(int64(n), 10) + `"`), nil
}

type header struct {
	Cluster  json.Number `json:"cluster_id"`
	Revision int64Text   `json:"revision"`
}

type wireKV struct {
	Key     []byte    `json:"key"`
	Value   []byte    `json:"value"`
	Create  int64Text `json:"create_revision"`
	Mod     int64Text `json:"mod_revision"`
	Version int64Text `json:"version"`
	Lease   int64Text `json:"lease"`
}

func (k wireKV) kv() KV {
	return KV{string(k.Key), k.Value, int64(k.Create), int64(k.Mod), int64(k.Version), int64(k.Lease)}
}

func kvs(list []wireKV) []KV {
	if len(list) == 0 {
		return nil
	}
	out := make([]KV, len(list))
	for i, k := range list {
		out[i] = k.kv()
	}
	return out
}
