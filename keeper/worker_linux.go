package keeper

import (
	"context"
	"errors"
)

// Worker is the worker's end of the connection to its keeper. Its methods may be called from several
// goroutines.
type Worker struct{}

// Connect connects a worker to the keeper that started it. It returns nil and no error if no keeper
// did: the program then calls [Run], or works without one.
//
// Connect takes the environment variable that the keeper has set out of the environment. It waits
// until the keeper has answered, and until the items with the labels of [Config.Standby] are there.
func Connect() (*Worker, error) { return nil, nil }

// Held returns what the workers before this one had the keeper hold. Until [Worker.Prepared] has returned,
// these are the items with the labels of [Config.Standby]. The descriptors are duplicates that belong
// to the caller from now on; closing them does not change what is held. Each item is returned once.
func (w *Worker) Held() []Item { return nil }

// Hold has the keeper hold duplicates of descriptors under a key, which must not be in use. It only
// queues them: they are held as soon as the next Flush has returned no error, and until then they must
// stay open. The descriptors still belong to the caller. Hold does not wait.
//
// An error says that the item cannot be held: the label or the number of descriptors exceeds
// its limit ([MaxLabel], [MaxDescriptors]), the keeper's limits are reached ([ErrFull]), or there is no
// keeper any more ([ErrLost]).
func (w *Worker) Hold(key [2]uint64, label string, fds []int) error { return ErrLost }

// Drop ends the holding of an item. The keeper closes its duplicates. Drop does not wait and never
// fails: what cannot be sent at the next Flush is sent as soon as possible.
func (w *Worker) Drop(key [2]uint64) {}

// Flush sends what Hold and Drop have queued. It does not wait. If it returns an error, nothing of what
// was given to Hold since the last Flush is held. The error is [ErrBusy] if the keeper has not read
// what was sent before: the caller calls Hold and Flush again, a little later.
func (w *Worker) Flush() error { return ErrLost }

// Start describes why this worker was started.
func (w *Worker) Start() Start { return Start{} }

// Prepared says that this worker is able to run: its configuration and the items that it has are
// valid. info is shown to whoever asked for an upgrade. Prepared waits until the worker before
// this one has ended, and until all items have arrived. When it has returned nil, the caller does what
// makes it run, and calls Ready.
//
// A worker that finds itself unable to run exits instead: its message goes to the standard error stream.
func (w *Worker) Prepared(info string) error { return ErrLost }

// Ready says that this worker runs.
func (w *Worker) Ready() error { return ErrLost }

// Alive says that this worker still runs. A worker that is ready calls it several times within
// [Config.Watchdog].
func (w *Worker) Alive() {}

// Notify passes lines on to the service manager, as sd_notify(3) has them. The keeper accepts STATUS,
// RELOADING, READY, STOPPING, MONOTONIC_USEC, EXTEND_TIMEOUT_USEC and ERRNO.
func (w *Worker) Notify(state string) {}

// Exiting says that this worker is about to exit for good: the keeper does not start another one, and
// exits with its code.
func (w *Worker) Exiting() {}

// Restart asks the keeper to replace this worker by a new process of the same binary. The old one is
// asked to hand over, as for an upgrade.
func (w *Worker) Restart() error { return ErrLost }

// OnHandOver sets the function that is called, on a goroutine of its own, when the keeper asks this worker to make
// room for another one. It brings what it holds up to date, calls HandedOver, and exits.
func (w *Worker) OnHandOver(f func()) {}

// HandedOver waits until everything has been sent to the keeper, and says that this worker has nothing
// more to say. The process exits then; its exit code is not looked at.
func (w *Worker) HandedOver() error { return ErrLost }

// Upgrade asks the keeper to replace this worker by a process of another binary. An empty path is that of the
// keeper's configuration. The new process is started beside this one and must call Prepared, which is all
// that happens in a dry run. Then this worker is asked to hand over.
//
// progress is called whenever the upgrade has reached another state. Upgrade returns when the upgrade is over;
// usually this process has ended before, and the next one learns by [Start] and LastUpgrade what
// happened. The error is nil, ErrLost, or that of ctx.
func (w *Worker) Upgrade(ctx context.Context, binary string, dryRun bool, progress func(Upgrade)) (Upgrade, error) {
	return Upgrade{}, ErrLost
}

// LastUpgrade returns the latest upgrade, which may be under way.
func (w *Worker) LastUpgrade() Upgrade { return Upgrade{} }

// OnRefused sets the function that is called with the key of each item that the keeper did not take after
// all, because it ran out of descriptors. It is called on a goroutine of this package.
func (w *Worker) OnRefused(f func(key [2]uint64)) {}

// Stats returns the numbers of this connection.
func (w *Worker) Stats() Stats { return Stats{} }

// Lost returns a channel that is closed when the keeper has gone. The worker works on; nothing is
// held any more.
func (w *Worker) Lost() <-chan struct{} { return nil }

// Run is the keeper: it starts a worker and holds its descriptors until a worker has ended as planned.
// It returns the exit code for the process. An error says why nothing could be started.
//
// Run takes over the signals of the process: SIGTERM, SIGINT, SIGHUP and SIGUSR1 are passed on to the worker, and
// SIGUSR2 is an upgrade to the file that is now at the path of [Config.Binary]. It is called once.
func Run(cfg Config) (exitCode int, err error) { return 1, errors.ErrUnsupported }
