package relay

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay/stats"
)

// Transfer counts what one direction has moved, in bytes. Bytes that Hooks.Sniff
// took away and bytes that Flow.Preface added are not included.
type Transfer struct {
	Read    int64 // taken from the source
	Written int64 // accepted by the destination's socket
	Held    int64 // of Read, what the destination's socket has not accepted yet; 0 in a Record
	Spliced int64 // of Written, what never was in user-space memory
	// Datagrams and DatagramsDropped count the datagrams of a datagram flow that
	// were sent on, and those that were read and dropped, empty ones included.
	Datagrams, DatagramsDropped int64
	Path                        datapath.Path // how the bytes moved
	Why                         datapath.Why  // why not by the fastest path
}

// BytesDropped returns the number of bytes that were read and not delivered.
func (t Transfer) BytesDropped() int64 { return t.Read - t.Written - t.Held }

// Record describes a flow that has ended. The client of a pair given to
// [Engine.Relay] is the first connection, the upstream the second.
type Record struct {
	ID       uint64    // unique in this engine
	Listener *Listener // that accepted the client; nil for a pair given to Relay
	Value    any       // as set by Flow.SetValue, or PairConfig.Value
	Client   Addr      // see Flow.Client
	Peer     Addr      // the remote address of the client's socket; differs from Client after Flow.SetClient
	Upstream Addr      // that was connected, or tried last; zero if none was tried
	Attempts int       // upstreams tried
	Up       Transfer  // from the client to the upstream
	Down     Transfer  // from the upstream to the client
	Start    time.Time
	Connect  time.Duration // from Start until the upstream was connected; 0 if it never was
	// FirstByte is the time from when the upstream was connected until its first
	// byte; 0 if none came. For a datagram flow it is the time between the
	// upstream's first answer and the client's last datagram before that.
	FirstByte time.Duration
	// ClientTLS and UpstreamTLS describe the TLS of a side after [Flow.Terminate] and [Flow.Originate]; nil if
	// there is none.
	ClientTLS, UpstreamTLS *stats.TLS
	Queued                 time.Duration // how long the flow was queued; part of Connect, and of Duration
	Duration               time.Duration // from Start until the end
	Cause                  Cause
	Err                    error // the error behind Cause, such as a system call's; nil where there is none
}

// String returns the record in one line, such as
// "tcp://192.0.2.1:4000 to tcp://10.0.0.1:80: end; 10 bytes up, 20 down in 1.5s".
func (r Record) String() string {
	to := "no upstream"
	if r.Upstream != (Addr{}) {
		to = r.Upstream.String()
	}
	text := fmt.Sprintf("%v to %s: %v", r.Client, to, r.Cause)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return fmt.Sprintf("%s; %d bytes up, %d down in %v", text, r.Up.Written, r.Down.Written, r.Duration)
}

// MarshalJSON returns an object with the attributes that LogValue returns;
// duration is in nanoseconds.
func (r Record) MarshalJSON() ([]byte, error) {
	object := make(map[string]any)
	for _, a := range r.LogValue().Group() {
		object[a.Key] = a.Value.Resolve().Any()
	}
	return json.Marshal(object)
}

// LogValue returns a group of the attributes id, cause, client, upstream,
// bytes_up, bytes_down, duration, path_up and path_down, and where they are not
// zero bytes_dropped, datagrams_dropped, attempts (if more than one) and error.
// The id is a string: many readers of JSON round numbers of 64 bits.
// It implements [slog.LogValuer].
func (r Record) LogValue() slog.Value {
	attrs := append(make([]slog.Attr, 0, 13),
		slog.String("id", strconv.FormatUint(r.ID, 10)),
		slog.String("cause", r.Cause.String()),
		slog.String("client", r.Client.String()),
		slog.String("upstream", r.Upstream.String()),
		slog.Int64("bytes_up", r.Up.Written),
		slog.Int64("bytes_down", r.Down.Written),
		slog.Duration("duration", r.Duration),
	)
	if n := r.Up.BytesDropped() + r.Down.BytesDropped(); n > 0 {
		attrs = append(attrs, slog.Int64("bytes_dropped", n))
	}
	if n := r.Up.DatagramsDropped + r.Down.DatagramsDropped; n > 0 {
		attrs = append(attrs, slog.Int64("datagrams_dropped", n))
	}
	if r.Attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", r.Attempts))
	}
	attrs = append(attrs, slog.String("path_up", r.Up.pathText()), slog.String("path_down", r.Down.pathText()))
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", r.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}

// pathText returns the path and, if there is one, the reason why not a faster one: "splice", "copy: small reads".
func (t *Transfer) pathText() string {
	if t.Path == datapath.Copy && t.Why != datapath.WhyNone {
		return t.Path.String() + ": " + t.Why.String()
	}
	return t.Path.String()
}
