package admin

import (
	"context"
	"io/fs"
	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay/stats"
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
	// Counters returns the numbers for metrics.
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
	SetMember(ctx context.Context, group, member string, change api.MemberChange) (api.Members, error)
	// AddMember adds a member, of which everything except for the address has been checked, and
	// returns it.
	AddMember(ctx context.Context, group string, m api.NewMember) (api.Members, error)
	// RemoveMember removes the member with the given name or address, and returns what was
	// removed. Its flows are treated as their routes say for removed members.
	RemoveMember(group, member string) ([]api.Member, error)
	// Capture calls tell with the flows that a capture is about, first those that are open, until the context ends, the one flow
	// has ended, or tell returns an error. The request has been checked; source is its network. An unknown flow is api.NotFound.
	Capture(ctx context.Context, n api.NewCapture, source netip.Prefix, tell func(api.CaptureLine) error) error
	// Lists returns the lists of networks, in the order of the file.
	Lists() api.Lists
	// Bans returns the bans that hold.
	Bans() api.Bans
	// Ban bans a network, of which everything except for the network has been checked, and Unban lifts its ban. A network that is not
	// banned is api.NotFound.
	Ban(ctx context.Context, n api.NewBan) (api.Ban, error)
	Unban(ctx context.Context, network string) (api.Ban, error)
	// SetSplit changes the weights of the parts of a route, and returns the route. The change has been checked. An unknown listener,
	// route or part is api.NotFound.
	SetSplit(ctx context.Context, listener, route string, change api.SplitChange) (api.Route, error)
	// MemberChanges returns how running members, and the weights of parts, differ from the file.
	MemberChanges() api.MemberChanges

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

	// Upgrade hands over to another process, and calls step with its steps as they come. It returns
	// after the last step, or does not return before the process ends. An error is one that comes
	// before the first step.
	Upgrade(ctx context.Context, u api.Upgrade, step func(api.UpgradeStep)) error

	// Level returns the level of the log, one of api.Levels.
	Level() string
	SetLevel(level string)

	// Drain starts the drain of the daemon, if it has not started. Draining reports its
	// progress.
	Drain()
	Draining() api.Drain
}

// Counters are numbers that only metrics show, or that they show in more detail.
type Counters struct {
	Points                 []account.Point // the flows, by listener, route, group and member
	Engine                 stats.Engine
	Reloads, FailedReloads int64
	Logs                   []LogCounters
}

// LogCounters counts the lines of a log that were not written.
type LogCounters struct {
	Name    string // log, or access for the access log
	Dropped int64  // the log was too slow, or writing failed
	LeftOut int64  // the message came too often
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
