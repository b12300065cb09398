package relay

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Transfer is what one direction has moved, in bytes. What Hooks.Sniff took away
// and what Flow.Preface put in front are no part of it.
type Transfer struct {
	Read    int64 // taken from the source
	Written int64 // accepted by the destination's socket
	Waiting int64 // of Read, what the destination's socket is still to accept; 0 in a Record
	Spliced int64 // of Written, what never was in user-space memory
	// Datagrams counts those of Written on a datagram flow, and Lost those that
	// were read and dropped, an empty one too.
	Datagrams, Lost int64
	Path            Path
	Why             Why // why not spliced, or not in runs
}

// Dropped tells how many bytes were read and could not be delivered.
func (t Transfer) Dropped() int64 { return t.Read - t.Written - t.Waiting }

// Record is the account of one flow, made when it has ended.
type Record struct {
	ID       uint64    // unique in this engine
	Listener *Listener // nil for a pair given to Relay
	Value    any       // Flow.SetValue's or Options.Value
	A        Addr      // the client
	Peer     Addr      // A, or where Flow.SetClient was called the address that the socket has
	B        Addr      // the upstream that was connected or tried last
	Attempts int       // upstreams tried
	AB, BA   Transfer
	Start    time.Time
	Connect  time.Duration // from the start until B was connected; 0 if it never was
	// FirstByte is from when B was connected until its first byte; 0 if none came. Of
	// a datagram flow it is the time from the client's last datagram before B's first
	// answer until that answer.
	FirstByte time.Duration
	Queued    time.Duration // of Connect, or of Duration where B never was connected: how long Hooks.Upstream had the flow wait
	Duration  time.Duration
	Cause     Cause
	Err       error // the system call's error where one is the cause
}

// String returns the record in one line, such as
// "tcp://192.0.2.1:4000 to tcp://10.0.0.1:80: end; 10 bytes sent, 20 received in 1.5s".
func (r Record) String() string {
	to := "no upstream"
	if r.B != (Addr{}) {
		to = r.B.String()
	}
	text := fmt.Sprintf("%v to %s: %v", r.A, to, r.Cause)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return fmt.Sprintf("%s; %d bytes sent, %d received in %v", text, r.AB.Written, r.BA.Written, r.Duration)
}

// MarshalText returns what String returns. The error is always nil.
func (r Record) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalJSON returns an object with the attributes that LogValue returns;
// duration is in nanoseconds.
func (r Record) MarshalJSON() ([]byte, error) {
	object := make(map[string]any)
	for _, a := range r.LogValue().Group() {
		object[a.Key] = a.Value.Resolve().Any()
	}
	return json.Marshal(object)
}

// LogValue returns a group of the attributes id, cause, client, upstream, sent,
// received, duration, path_sent and path_received, and where there is something
// to tell dropped (bytes), lost (datagrams), attempts (more than one) and error.
// The id is a string: many readers of JSON round numbers of 64 bits.
// It implements [slog.LogValuer].
func (r Record) LogValue() slog.Value {
	attrs := append(make([]slog.Attr, 0, 13),
		slog.String("id", strconv.FormatUint(r.ID, 10)),
		slog.String("cause", r.Cause.String()),
		slog.String("client", r.A.String()),
		slog.String("upstream", r.B.String()),
		slog.Int64("sent", r.AB.Written),
		slog.Int64("received", r.BA.Written),
		slog.Duration("duration", r.Duration),
	)
	if n := r.AB.Dropped() + r.BA.Dropped(); n > 0 {
		attrs = append(attrs, slog.Int64("dropped", n))
	}
	if n := r.AB.Lost + r.BA.Lost; n > 0 {
		attrs = append(attrs, slog.Int64("lost", n))
	}
	if r.Attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", r.Attempts))
	}
	attrs = append(attrs, slog.String("path_sent", r.AB.way()), slog.String("path_received", r.BA.way()))
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", r.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}

// way is how the bytes went, and why not a faster way: "splice", "copy: small reads".
func (t *Transfer) way() string {
	if t.Path == PathCopy && t.Why != WhyNone {
		return t.Path.String() + ": " + t.Why.String()
	}
	return t.Path.String()
}
