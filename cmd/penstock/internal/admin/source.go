package admin

import (
	"context"
	"io/fs"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Observer reports live state.
type Observer interface {
	// Status returns the state of the daemon. The server sets those fields that it knows
	// itself: Access; of Resources FDs, Goroutines and HeapBytes; of Sample Time, Uptime,
	// LastEvent, Listeners and Groups.
	Status() api.Status
	// Listeners and Groups return them in the order of the file. The caller may keep them.
	Listeners() []api.Listener
	Groups() []api.Group
	// Counters are what only metrics show.
	Counters() Counters
}

// snapshotter is implemented by a Source that can read its state once for several answers.
// The Observer that Snapshot returns is used by one goroutine.
type snapshotter interface{ Snapshot() Observer }

// snapshotOf returns a snapshot of s, or s itself if it has no snapshots.
func snapshotOf(s Source) Observer {
	if m, ok := s.(snapshotter); ok {
		return m.Snapshot()
	}
	return s
}

// Source is the daemon, as package app provides it. Its methods are called by several
// goroutines at once, but never by an event loop, and may block for as long as a person
// would wait. An error that is an *api.Problem is answered as it is, any other error with
// status 500.
type Source interface {
	Observer

	// Config returns the running configuration, without secrets.
	Config() api.Config

	// SetMember changes the members with the given name or address, and returns them with
	// their new state. The change has been checked. An unknown group or member is
	// api.NotFound.
	SetMember(group, member string, change api.MemberChange) ([]api.Member, error)

	// Flows calls yield with slices of open flows until all were passed, yield returns
	// false, or ctx ends, whose error it then returns. A slice is valid during the call.
	// Flows does not stop the event loops.
	Flows(ctx context.Context, yield func([]api.Flow) bool) error
	// Flow returns one open flow, or false if there is none with that id.
	Flow(ctx context.Context, id uint64) (api.FlowDetail, bool)
	// Ended returns the flows that ended last, the latest first. If problems is true, it
	// returns only those with a problem. The caller may keep them.
	Ended(problems bool) []api.EndedFlow
	// Kill ends flows, and returns how many of them were still open.
	Kill(ctx context.Context, ids []uint64) int64

	// Reload reads the configuration file again and applies it. An invalid file changes
	// nothing, and the error is api.BadConfig.
	Reload(ctx context.Context) (api.Diff, error)
	// Diff returns what the text of a configuration would change.
	Diff(ctx context.Context, text []byte) (api.Diff, error)

	// FileDiff returns what a reload would change now. An invalid file is api.BadConfig.
	FileDiff(ctx context.Context) (api.Diff, error)

	// Level returns the level of the log, one of api.Levels.
	Level() string
	SetLevel(level string)

	// Drain starts the drain of the daemon, if it has not started. Draining reports its
	// progress.
	Drain()
	Draining() api.Drain
}

// Counters are the numbers that have no place in the API's answers.
type Counters struct {
	Series []Series
	Times  []Times
	// Refused are flows that the daemon itself refused or ended, by listener and reason.
	Refused []Refused
	// DatagramDrops are datagrams that were read and not delivered, by reason.
	DatagramDrops []Count
	// LogLinesDropped are lines that were lost, by where they should have gone: log, access.
	LogLinesDropped []Count

	AcceptErrors, AcceptPauses int64
	BytesSpliced, BytesDropped int64
	ICMPErrors                 int64
	Resting, RestsCut          int64 // sockets of ended datagram flows: now, and closed before their time
	Supers, Runs               int64 // messages with several datagrams that were received (GRO) and sent (GSO)

	Reloads, FailedReloads int64
	// Pools are the engine's pools of buffers.
	Pools []Pool
}

// Count is a number of something with a name.
type Count struct {
	Name string
	N    int64
}

// Series is what flows of one listener, route, group and member did. Names that
// a flow did not get to are empty.
type Series struct {
	Listener, Route, Group, Member string

	Open                       int64
	Ended                      []Count // by the engine's cause
	BytesUp, BytesDown         int64
	DatagramsUp, DatagramsDown int64
}

// Times are how long flows of one listener, route and group took.
type Times struct {
	Listener, Route, Group string

	Connect, FirstByte, Life Histogram
}

// Histogram counts values between bounds, in seconds. Counts has one more than
// Bounds: what is above the last. The caller shares Bounds and does not change them.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
}

// Refused are flows of a listener that the daemon refused or ended, for one of spec's reasons.
type Refused struct {
	Listener, Reason string
	N                int64
}

// Pool is one pool of buffers.
type Pool struct {
	Name string
	Gets int64 // how often a buffer was asked for
	News int64 // how often it had to be made
	Kept int64 // gauge: buffers that wait in the pool
	Live int64 // gauge: buffers that exist, in the pool or in use
}

// Config configures a Server. The zero value serves Unix sockets only.
type Config struct {
	// Token and ReadToken are the tokens of clients on TCP. Without Token the server does
	// not serve TCP listeners.
	Token, ReadToken string
	// Events are the events that the API lists; nil for none.
	Events *Events
	// Started is the start of the process; the zero time means now.
	Started time.Time
	// Page holds the files of the dashboard, among them index.html; nil for none.
	Page fs.FS
}
