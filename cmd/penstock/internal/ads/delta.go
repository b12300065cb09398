package ads

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of the delta protocol, envoy.service.discovery.v3. Numbers of fields are those of
// discovery.proto.

// A Node says to the control plane which relay this is.
type Node struct {
	ID       string
	Cluster  string // of relays; for the control plane's use
	Zone     string
	Version  string            // of Penstock
	Metadata map[string]string // for the control plane's use
}

// A request is a DeltaDiscoveryRequest.
type request struct {
	node        *Node // in the first request of a stream
	url         string
	subscribe   []string
	unsubscribe []string
	known       map[string]string // versions by name; in the first request of a type
	nonce       string
	refusal     string // empty: none
}

func (r *request) append(b []byte) []byte {
	if r.node != nil {
		b = appendBytes(b, 1, r.node.append(nil))
	}
	b = appendText(b, 2, r.url)
	for _, name := range r.subscribe {
		b = appendText(b, 3, name)
	}
	for _, name := range r.unsubscribe {
		b = appendText(b, 4, name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		entry := appendText(nil, 1, name)
		b = appendBytes(b, 5, appendText(entry, 2, r.known[name]))
	}
	if r.nonce != "" {
		b = appendText(b, 6, r.nonce)
	}
	if r.refusal != "" {
		status := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), codeInvalid)
		b = appendBytes(b, 7, appendText(status, 2, r.refusal))
	}
	return b
}

func (n *Node) append(b []byte) []byte {
	b = appendText(b, 1, n.ID)
	if n.Cluster != "" {
		b = appendText(b, 2, n.Cluster)
	}
	if len(n.Metadata) > 0 {
		var fields []byte
		for _, key := range slices.Sorted(maps.Keys(n.Metadata)) {
			entry := appendText(nil, 1, key)
			entry = appendBytes(entry, 2, appendText(nil, 3, n.Metadata[key]))
			fields = appendBytes(fields, 1, entry)
		}
		b = appendBytes(b, 3, fields)
	}
	if n.Zone != "" {
		b = appendBytes(b, 4, appendText(nil, 2, n.Zone))
	}
	b = appendText(b, 6, "penstock")
	return appendText(b, 7, n.Version)
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// A Response is a DeltaDiscoveryResponse. Its bytes belong to it.
type Response struct {
	Version   string // of the whole, for messages; servers may leave it empty
	Resources []Resource
	Removed   []string // names

	URL, nonce string
	Size       int    // of the message
	content    uint64 // see drop; 0: not known yet

	client *Client
	stream *stream
	of     *Subscription
}

// Empty reports whether there is no resource: the control plane only says that it is still there.
func (r *Resource) Empty() bool { return r.URL == "" && r.Value == nil }

// A Resource is one resource of a response.
type Resource struct {
	Name    string
	Version string
	URL     string // of the type of Value; empty: nothing but a sign of life
	Value   []byte
	TTL     time.Duration // 0: none
}

// Bounds of what one response may have.
const (
	MaxResources = 100_000
	MaxName      = 4 << 10
)

// parseResponse reads a DeltaDiscoveryResponse. It takes over b.
func parseResponse(b []byte) (*Response, error) {
	r := &Response{Size: len(b)}
	err := EachField(b, func(n protowire.Number, v RawValue) error {
		switch n {
		case 1:
			r.Version = v.text()
		case 2:
			if len(r.Resources) >= MaxResources {
				return fmt.Errorf("more than %d resources", MaxResources)
			}
			res, err := parseResource(v.Bytes)
			if err != nil {
				return fmt.Errorf("resources[%d]: %w", len(r.Resources), err)
			}
			r.Resources = append(r.Resources, res)
		case 4:
			r.URL = v.text()
		case 5:
			var err error
			r.nonce, err = v.name()
			return err
		case 6:
			if len(r.Removed) >= MaxResources {
				return fmt.Errorf("more than %d removed_resources", MaxResources)
			}
			name, err := v.name()
			if err != nil {
				return fmt.Errorf("removed_resources[%d]: %w", len(r.Removed), err)
			}
			r.Removed = append(r.Removed, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("invalid DeltaDiscoveryResponse: %w", err)
	}
	if r.URL == "" || r.nonce == "" {
		return nil, errors.New("invalid DeltaDiscoveryResponse: no type_url or no nonce")
	}
	return r, nil
}

func parseResource(b []byte) (r Resource, err error) {
	err = EachField(b, func(n protowire.Number, v RawValue) (err error) {
		switch n {
		case 1:
			r.Version, err = v.name()
			return err
		case 2:
			r.URL, r.Value, err = ParseAny(v.Bytes)
			return err
		case 3:
			r.Name, err = v.name()
			return err
		case 6:
			r.TTL, err = ParseDuration(v.Bytes)
			return err
		}
		return nil
	})
	return r, err
}

// ParseAny reads a google.protobuf.Any.
func ParseAny(b []byte) (url string, value []byte, err error) {
	err = EachField(b, func(n protowire.Number, v RawValue) error {
		switch n {
		case 1:
			url = v.text()
		case 2:
			value = v.Bytes
		}
		return nil
	})
	return url, value, err
}

// ParseDuration reads a google.protobuf.Duration.
func ParseDuration(b []byte) (time.Duration, error) {
	var seconds, nanos int64
	err := EachField(b, func(n protowire.Number, v RawValue) error {
		switch n {
		case 1:
			seconds = int64(v.Number)
		case 2:
			nanos = int64(int32(v.Number))
		}
		return nil
	})
	const most = 315_576_000_000 // seconds; duration.proto
	if err == nil && (seconds < -most || seconds > most || nanos <= -1e9 || nanos >= 1e9) {
		err = errors.New("invalid duration")
	}
	const longest = int64(1<<63-1) / int64(time.Second)
	seconds = min(max(seconds, -longest+1), longest-1)
	return time.Duration(seconds)*time.Second + time.Duration(nanos), err
}

// A RawValue is the value of a field: b of a text, a message or packed numbers, n of everything else.
type RawValue struct {
	Kind   protowire.Type
	Number uint64
	Bytes  []byte
}

// text returns a text, which is cut if it is too long.
func (v RawValue) text() string { return string(v.Bytes[:min(len(v.Bytes), MaxName)]) }

// name returns a text that is to be said again to the control plane. Part of one, or bytes that are no text, would
// be another one, or what it cannot read.
func (v RawValue) name() (string, error) {
	if len(v.Bytes) > MaxName || !utf8.Valid(v.Bytes) {
		return "", fmt.Errorf("not a text of at most %d bytes", MaxName)
	}
	return string(v.Bytes), nil
}

var ErrWire = errors.New("not a valid protobuf message")

// EachField calls f with each field of a message, and stops at its first error.
func EachField(b []byte, f func(protowire.Number, RawValue) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrWire
		}
		b = b[n:]
		v := RawValue{Kind: kind}
		switch kind {
		case protowire.VarintType:
			v.Number, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v.Number, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(b)
			v.Number = uint64(x)
		case protowire.BytesType:
			v.Bytes, n = protowire.ConsumeBytes(b)
		default:
			return ErrWire // groups are not used by any message of proto3
		}
		if n < 0 {
			return ErrWire
		}
		b = b[n:]
		if err := f(number, v); err != nil {
			return err
		}
	}
	return nil
}
