// Package keeper holds the descriptors of a worker process, starts that process, and starts it again
// when it dies. Its API may change after version 1.0 of the module; CHANGELOG.md then says how to follow.
//
// There are two processes. The keeper is small and does one thing: [Run] starts the worker, holds
// duplicates of what the worker asks it to hold, and gives them to the next worker. The worker does
// the work: it calls [Connect], receives what the worker before it had, and says which descriptors
// are to be held from now on ([Worker.Hold]) and which no longer ([Worker.Drop]). A connection whose
// descriptor is held survives the death of the worker at any instruction, by any signal; so does
// memory in a memfd, a pipe with the bytes in it, and a listening socket with the clients in its
// queue. A server on package net has its connections and listeners held by [Worker.HoldConn], and has them
// back from [Item.Conn] and [Item.Listener]; [Memory] is for what it knows of them.
//
// Most programs run both from the same binary: main calls Connect, and Run if there is no keeper.
//
// The two processes trust each other as far as parent and child do, but what a worker sends is
// checked: a worker that has lost its mind cannot crash the keeper, or make it hold more than
// [Config.MaxItems] and its limit of descriptors allow.
//
// The package needs Linux. On other systems Run returns [errors.ErrUnsupported], and Connect returns
// nil, as it does for a program that no keeper started.
package keeper

import (
	"os"
	"time"
)

// MaxLabel is the maximum length of an item's label in bytes.
const MaxLabel = 255

// MaxDescriptors is the maximum number of descriptors of one item.
const MaxDescriptors = 64

// MaxPolicy and MaxRequest are the maximum lengths of a policy ([Worker.SetPolicy]) and of a request ([Worker.Ask]) in bytes.
const (
	MaxPolicy  = 256 << 10
	MaxRequest = 16 << 10
)

// Config configures [Run]. The zero value of each field stands for the default that it names.
type Config struct {
	// Binary is the path of the worker's program. Empty: the program that is running. The file is
	// opened when Run begins, and the workers are started from the open file: replacing the file
	// changes nothing until an upgrade.
	Binary string
	// Args are the worker's arguments, beginning with its name. Nil: those of this process.
	Args []string
	// Env is the worker's environment. Nil: that of this process.
	Env []string
	// Dir is the worker's working directory. Empty: that of this process.
	Dir string
	// Inherit are open files that each worker inherits as descriptors 3 and following. They belong to
	// the caller and stay open until Run returns.
	Inherit []*os.File
	// Standby lists labels. A worker has the items with one of these labels from [Connect] on, and all
	// others when [Worker.Prepared] has returned: a worker that is started beside the old one for an
	// upgrade can look at them before anything is touched.
	Standby []string

	// ConnectTimeout bounds the time from the start of a worker to its Connect. 0: 10 s.
	ConnectTimeout time.Duration
	// ReadyTimeout bounds the time from Connect to [Worker.Ready], without the time that a worker spends
	// on standby. 0: 60 s.
	ReadyTimeout time.Duration
	// HandOverTimeout bounds the time that the old worker has for its end when another one takes over.
	// After that it is killed, which is as good. 0: 10 s.
	HandOverTimeout time.Duration
	// Watchdog bounds the time between two calls of [Worker.Alive] of a worker that is ready. A worker
	// that exceeds it is killed and started again. 0: 10 s; negative: no watchdog.
	Watchdog time.Duration
	// Healthy is how long a worker must be ready until an upgrade to it is final. If it dies
	// earlier, the keeper goes back to the binary before. 0: 10 s.
	Healthy time.Duration
	// Good is how long a worker must be ready until its binary counts as one that works, and its deaths
	// are counted from zero. 0: 60 s.
	Good time.Duration
	// Backoff is the pause before the second start in a row; the first one has none. It doubles with
	// each further death. 0: 100 ms.
	Backoff time.Duration
	// MaxBackoff bounds the pause. 0: 10 s.
	MaxBackoff time.Duration
	// MaxDeaths is how many deaths in a row the current binary has until the keeper returns to the last
	// one that worked. 0: 5.
	MaxDeaths int
	// MaxItems bounds the number of items. 0: 1,000,000. The number of descriptors, of which each item has
	// at least one, is bounded by RLIMIT_NOFILE, of which the keeper leaves a few free; and with it
	// all labels together, by 64 KiB and 32 bytes per descriptor.
	MaxItems int
	// KeepSelf leaves the keeper at its own version when the worker is upgraded. Otherwise it
	// executes the new binary in place once the upgrade is final.
	KeepSelf bool

	// NotifyEvery is how often Notify is called with WATCHDOG=1 while the keeper works. 0: never.
	NotifyEvery time.Duration

	// Broker opens what workers may not open themselves ([Worker.Ask]). It is called with the worker's policy ([Worker.SetPolicy])
	// and its request, which may come from an attacker: it checks the one against the other, and has no other use for either. It
	// returns a descriptor, which then belongs to the keeper and must have FD_CLOEXEC set, or an error, whose text and
	// [syscall.Errno] the worker gets. It is called on goroutines of its own, four at most at a time. Nil: workers cannot ask.
	Broker func(policy, request string) (fd int, err error)
	// CheckBinary says whether a worker may be replaced by another binary that it names ([Worker.Upgrade]): the next worker begins
	// with the keeper's privileges, so a worker without them must not choose a file that it can write. It is called with the worker's
	// policy, the path, and the open file, on the goroutine of Run, and must not block. Nil: each binary is accepted. That of
	// Binary is not checked.
	CheckBinary func(policy, path string, fd int) error
	// AskTimeout bounds the time to an answer. The worker gets ETIMEDOUT, and what Broker returns later is closed. 0: 5 s.
	AskTimeout time.Duration

	// Paused is called when there is no worker and the next one starts after a pause, with a line that says why and how long. held
	// calls yield for each item with a label, whose descriptors stay the keeper's, and can be duplicated during the call. It
	// must not block, and is called on the goroutine of Run, as is the function that it returns, if that is not nil, before the next
	// worker starts or Run returns. Nil: nothing is called.
	Paused func(why string, held func(yield func(label string, fds []int) bool)) (resume func())

	// Log is called with what happens to the workers, on the goroutine of Run. It must not block.
	Log func(Event)
	// Notify is called with lines for the service manager, as for sd_notify(3): READY=1, STOPPING=1,
	// WATCHDOG=1, and what workers passed on with [Worker.Notify]. It must not block.
	Notify func(state string)
}

// Times are the times of [Config] that a worker can change while the keeper runs ([Worker.SetTimes]). Zero leaves a time as
// it is, and a negative one means the same as in Config.
type Times struct {
	ReadyTimeout time.Duration
	Watchdog     time.Duration
	Healthy      time.Duration
	MaxBackoff   time.Duration
}

// Item is something that the keeper holds: descriptors under a key that the worker chose.
type Item struct {
	Key   [2]uint64
	Label string
	// FDs are the descriptors. They belong to whoever called [Worker.Held] and have FD_CLOEXEC set. If
	// the worker has no room for them (RLIMIT_NOFILE), FDs is nil.
	FDs []int
}

// MaxLingering is the maximum number of workers that linger; see [Worker.Linger].
const MaxLingering = 15

// Lingering is a worker that has handed over and goes on beside the next ones.
type Lingering struct {
	PID          int
	Since, Until time.Time // when it has handed over, and when the keeper ends it
	Dismissed    bool      // it was asked to end
}

// Reason says why a worker was started.
type Reason uint8

const (
	First    Reason = iota // the keeper has just begun
	Crash                  // the worker before it died
	Upgraded               // upgrade to another binary
	Rollback               // an upgrade failed; this is the binary before
	Restart                // planned restart with the same binary
)

// reasonCount is the number of reasons.
const reasonCount = int(Restart) + 1

// Death says how a worker ended.
type Death struct {
	PID    int
	Code   int    // exit code, if Signal is 0
	Signal int    // signal that ended the process, or 0
	Why    string // why the keeper ended it, or why it did itself ([Worker.Failing]), or empty
}

// Start describes why and when this worker was started.
type Start struct {
	Reason Reason
	// Died is the end of the worker before, if there was one.
	Died Death
	// Downtime is the time since the end of the last worker that was ready: it grows until this one is.
	Downtime time.Duration
	// Restarts counts the deaths in a row before this start; Total counts those since the keeper began.
	Restarts, Total int
	// Starts counts the workers that were started to work since the keeper began: this one, and those that died
	// before they were ready, too. It has each reason; the map must not be changed.
	Starts map[Reason]int
	// FellBack reports that this is not the binary that was to run: that one died too often.
	FellBack bool
	// Keeper is the process id of the keeper.
	Keeper int
	// Missing counts the items that this worker had no room for ([Item.FDs] is nil).
	Missing int
	// Upgrade is the last upgrade, or the zero value.
	Upgrade Upgrade
}

// State is the state of an upgrade.
type State uint8

const (
	NoUpgrade   State = iota
	Checking          // the new binary was started beside the old worker and prepares
	HandingOver       // the old worker was asked to hand over
	Starting          // the new worker has been given everything, and is not ready yet
	Proving           // the new worker is ready, and on trial until Config.Healthy has passed
	Done              // final
	Checked           // a dry run that found nothing wrong
	Refused           // the new binary is not able to run; nothing was touched
	RolledBack        // the new worker failed; the old binary runs again
)

// Upgrade describes an upgrade that is under way or over.
type Upgrade struct {
	ID      uint64 // counts upgrades since the keeper began
	State   State
	Binary  string // path of the new binary
	DryRun  bool
	Restart bool   // the same binary, by [Worker.Restart]
	Info    string // what the new worker said in Prepared
	Reason  string // why it was refused or rolled back
	Keeper  string // what became of the keeper itself: empty, "upgraded", or why it was not
}

// Over reports whether nothing further happens to u.
func (u Upgrade) Over() bool { return u.State >= Done || u.State == NoUpgrade }

// Stats are the numbers of one worker's connection to its keeper.
type Stats struct {
	Items, Descriptors       int    // held, as far as this worker knows
	MaxItems, MaxDescriptors int    // what the keeper is willing to hold
	Queued                   int    // drops that were not sent yet
	Refused                  uint64 // items that the keeper did not take
}
