package admin

import (
	"context"
	"io/fs"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Observer is what changes all the time.
type Observer interface {
	// Status is the daemon at this moment. Of Resources the server adds what the
	// process itself knows: FDs, Goroutines, HeapBytes and CPU; of Sample it adds Time,
	// Uptime, LastEvent, Listeners and Groups; and Access, which is the asker's.
	Status() api.Status
	// Listeners and Groups are in the order of the file. The caller may keep them.
	Listeners() []api.Listener
	Groups() []api.Group
	// Counters are what only metrics show.
	Counters() Counters
}

// A Source that gathers much for each of an Observer's answers may have Moment: what it
// returns answers from one look, and is asked by one goroutine.
type momentary interface{ Moment() Observer }

// momentOf is a source at one moment, if it can be had.
func momentOf(s Source) Observer {
	if m, ok := s.(momentary); ok {
		return m.Moment()
	}
	return s
}

// Source is what package app knows. Its methods are called by several goroutines
// at once, never by a loop, and may block for as long as a person waits. An error
// that is an *api.Problem is answered as it is, another one as 500.
type Source interface {
	Observer

	// Config is the configuration in force, without secrets.
	Config() api.Config

	// SetMember changes the members of a name or address, and returns them as they
	// are then. The change has been checked; an unknown group or member is api.NotFound.
	SetMember(group, member string, change api.MemberChange) ([]api.Member, error)

	// Flows gives all open flows to yield, in slices that are valid during the call,
	// until it returns false or ctx ends, whose error it returns. It stops no loop.
	Flows(ctx context.Context, yield func([]api.Flow) bool) error
	// Flow is one open flow, or false.
	Flow(ctx context.Context, id uint64) (api.FlowDetail, bool)
	// Ended returns the flows that ended last, the youngest first; with problems only
	// those with a problem. The caller may keep them.
	Ended(problems bool) []api.EndedFlow
	// Kill ends flows, and tells how many of them were still there.
	Kill(ctx context.Context, ids []uint64) int64

	// Reload reads the configuration again and puts it in force. One that is wrong
	// changes nothing, and the error is api.BadConfig.
	Reload(ctx context.Context) (api.Diff, error)
	// Diff tells what the text of a configuration would change.
	Diff(ctx context.Context, text []byte) (api.Diff, error)

	// FileDiff tells what a reload would change now. A file that is wrong is api.BadConfig.
	FileDiff(ctx context.Context) (api.Diff, error)

	// Level is the log's level, one of api.Levels.
	Level() string
	SetLevel(level string)

	// Drain begins the end of the daemon, if it has not begun. Draining tells how far it is.
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

// Config says how a server is built. Its zero value serves Unix sockets only.
type Config struct {
	// Token and ReadToken are what a client on TCP shows. Without Token no TCP listener is served.
	Token, ReadToken string
	// Events are those that the API tells of; nil: none.
	Events *Events
	// Started is the process's start; zero: now.
	Started time.Time
	// Page has the dashboard's files, index.html among them; nil: none.
	Page fs.FS
}
