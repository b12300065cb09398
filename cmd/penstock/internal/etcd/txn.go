package etcd

import (
	"context"
	"errors"
)

// A Txn is a transaction: if all of If hold, Then is done, otherwise Else.
type Txn struct {
	If         []Compare
	Then, Else []Op
}

// A Compare is a condition on a key. Absent, Present, ModIs, ValueIs and others make them.
type Compare struct {
	key, target, result string
	number              int64
	value               []byte
}

// Absent holds if the key does not exist.
func Absent(key string) Compare { return Compare{key: key, target: "VERSION", result: "EQUAL"} }

// Present holds if the key exists.
func Present(key string) Compare { return Compare{key: key, target: "VERSION", result: "GREATER"} }

// VersionIs holds if the key has been changed n-1 times since its creation.
func VersionIs(key string, n int64) Compare {
	return Compare{key: key, target: "VERSION", result: "EQUAL", number: n}
}

// ModIs holds if the key's last change was at the revision; 0: it does not exist.
func ModIs(key string, revision int64) Compare {
	return Compare{key: key, target: "MOD", result: "EQUAL", number: revision}
}

// CreateIs holds if the key was created at the revision; 0: it does not exist.
func CreateIs(key string, revision int64) Compare {
	return Compare{key: key, target: "CREATE", result: "EQUAL", number: revision}
}

// ValueIs holds if the key exists and has the value.
func ValueIs(key string, value []byte) Compare {
	return Compare{key: key, target: "VALUE", result: "EQUAL", value: value}
}

// An Op is an operation of a transaction. Put, Delete, DeletePrefix, Get and GetPrefix make them.
type Op struct {
	Put    *putRequest    `json:"request_put,omitempty"`
	Delete *deleteRequest `json:"request_delete_range,omitempty"`
	Range  *rangeRequest  `json:"request_range,omitempty"`
}

type putRequest struct {
	Key   []byte    `json:"key"`
	Value []byte    `json:"value"`
	Lease int64Text `json:"lease,omitempty"`
}

type deleteRequest struct {
	Key []byte `json:"key"`
	End []byte `json:"range_end,omitempty"`
}

// Put sets a key, with a lease if that is not 0.
func Put(key string, value []byte, lease LeaseID) Op {
	return Op{Put: &putRequest{[]byte(key), value, int64Text(lease)}}
}

// Delete removes a key.
func Delete(key string) Op { return Op{Delete: &deleteRequest{Key: []byte(key)}} }

// DeletePrefix removes all keys that begin with prefix.
func DeletePrefix(prefix string) Op {
	return Op{Delete: &deleteRequest{[]byte(beginning(prefix)), []byte(PrefixEnd(prefix))}}
}

// DeleteRange removes the keys from key up to end, without end.
func DeleteRange(key, end string) Op { return Op{Delete: &deleteRequest{[]byte(key), []byte(end)}} }

// Get reads a key.
func Get(key string) Op { return Op{Range: &rangeRequest{Key: []byte(key)}} }

// GetKeys reads the keys that begin with prefix, without their values.
func GetKeys(prefix string) Op {
	return Op{Range: &rangeRequest{Key: []byte(beginning(prefix)), End: []byte(PrefixEnd(prefix)), KeysOnly: true}}
}

// GetPrefix reads at most limit keys that begin with prefix; 0: all, if they fit into one answer.
func GetPrefix(prefix string, limit int) Op {
	return Op{Range: &rangeRequest{Key: []byte(beginning(prefix)), End: []byte(PrefixEnd(prefix)), Limit: int64Text(limit)}}
}

// A Result is the outcome of a transaction.
type Result struct {
	Succeeded bool     // Then was done
	Revision  int64    // of the store afterwards: that of the transaction's changes, if it made any
	Answers   []Answer // of each operation
}

// An Answer is the outcome of one operation.
type Answer struct {
	KVs     []KV  // of Get and GetPrefix
	Deleted int64 // of Delete and its like
}

type wireCompare struct {
	Key     []byte     `json:"key"`
	Result  string     `json:"result"`
	Target  string     `json:"target"`
	Version *int64Text `json:"version,omitempty"`
	Create  *int64Text `json:"create_revision,omitempty"`
	Mod     *int64Text `json:"mod_revision,omitempty"`
	Value   *[]byte    `json:"value,omitempty"`
}

type txnResponse struct {
	Header    header `json:"header"`
	Succeeded bool   `json:"succeeded"`
	Responses []struct {
		Range  *rangeResponse `json:"response_range"`
		Delete *struct {
			Deleted int64Text `json:"deleted"`
		} `json:"response_delete_range"`
	} `json:"responses"`
}

func (r *txnResponse) header() header { return r.Header }

// Do does a transaction. If it fails after it was sent, it may have been done or not: it is not sent again, and
// the caller must look.
func (c *Client) Do(ctx context.Context, t Txn) (Result, error) {
	in := struct {
		Compare []wireCompare `json:"compare,omitempty"`
		Success []Op          `json:"success,omitempty"`
		Failure []Op          `json:"failure,omitempty"`
	}{Success: t.Then, Failure: t.Else}
	writes := false
	for _, op := range append(t.Then[:len(t.Then):len(t.Then)], t.Else...) {
		writes = writes || op.Range == nil
	}
	for _, f := range t.If {
		w := wireCompare{Key: []byte(f.key), Result: f.result, Target: f.target}
		n := int64Text(f.number)
		switch f.target {
		case "VERSION":
			w.Version = &n
		case "CREATE":
			w.Create = &n
		case "MOD":
			w.Mod = &n
		default:
			w.Value = &f.value
		}
		in.Compare = append(in.Compare, w)
	}
	var out txnResponse
	if err := c.call(ctx, "/v3/kv/txn", in, &out, !writes); err != nil {
		return Result{}, err
	}
	done := t.Else
	if out.Succeeded {
		done = t.Then
	}
	if len(done) != len(out.Responses) {
		return Result{}, errors.New("the answer does not have the operations of the transaction")
	}
	r := Result{Succeeded: out.Succeeded, Revision: int64(out.Header.Revision), Answers: make([]Answer, len(done))}
	for i, a := range out.Responses {
		if a.Range != nil {
			r.Answers[i].KVs = kvs(a.Range.KVs)
		}
		if a.Delete != nil {
			r.Answers[i].Deleted = int64(a.Delete.Deleted)
		}
	}
	return r, nil
}
