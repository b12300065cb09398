package sources

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Remotes are the texts of the configuration that are kept in registries. A nil *Remotes has none.
type Remotes struct {
	layers  []*remoteLayer
	changed chan struct{} // receives after anything was delivered
	cancel  context.CancelFunc
	ended   sync.WaitGroup
}

// A Before is what this process knows of the worker before it, if there was one.
type Before interface {
	// Layers returns the texts from registries that it had, by path.
	Layers() map[string]spec.Layer
	// Trusted reports whether these may be used at once.
	Trusted() bool
	// Enter makes this process enter that worker's sandbox, for good: what it has left may be used then.
	Enter() error
	// Status tells the service manager what this process waits for.
	Status(text string)
}

// Options are those of Open.
type Options struct {
	Node    spec.Node
	Folder  string // where the last good versions are kept; empty: nowhere
	Program string // the version of this program, which control planes are told
}

// Open begins to follow those of the paths of a configuration that name registries. Without any it returns nil. The caller
// must close what it returns.
func Open(paths []string, o Options, worker Before) (*Remotes, error) {
	r := &Remotes{changed: make(chan struct{}, 1)}
	before := worker.Layers()
	for _, path := range paths {
		if !spec.IsRemote(path) || r.layer(path) != nil {
			continue
		}
		registry, key, err := spec.ParseRemote(path)
		if err != nil {
			return nil, err
		}
		l := &remoteLayer{path: path, file: newGoodFile(o.Folder, path)}
		if saved, ok := before[path]; ok {
			l.last = lastGood{Layer: saved, from: fromWorker}
		} else {
			l.last, l.damaged = l.file.read()
		}
		ran := l.last.Layer
		if l.last.stranger {
			ran = spec.Layer{}
		}
		if l.client, err = newRemoteClient(registry, key, o.Node, ran, o.Program); err != nil {
			return nil, fmt.Errorf("%s: %w", spec.RemoteName(path), err)
		}
		r.layers = append(r.layers, l)
	}
	if len(r.layers) == 0 {
		return nil, nil
	}
	r.start()
	return r, nil
}

// start begins to follow.
func (r *Remotes) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	for _, l := range r.layers {
		r.ended.Go(func() {
			l.client.follow(ctx, func(next spec.Layer, err error) {
				l.deliver(next, err)
				r.wake()
			})
		})
	}
}

func (r *Remotes) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Close ends the following.
func (r *Remotes) Close() {
	if r != nil {
		r.cancel()
		r.ended.Wait()
	}
}

func (r *Remotes) layer(path string) *remoteLayer {
	if r == nil {
		return nil
	}
	for _, l := range r.layers {
		if l.path == path {
			return l
		}
	}
	return nil
}

// Text is config.Source.Remote.
func (r *Remotes) Text(path string) (spec.Layer, error) {
	l := r.layer(path)
	if l == nil {
		return spec.Layer{}, fmt.Errorf("it is not followed")
	}
	return l.text()
}

// Changes receives when something may have changed.
func (r *Remotes) Changes() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.changed
}

// Times of the start. A registry that refuses connections is not waited for.
const (
	firstAnswer   = 3 * time.Second  // how long a registry may take, if there is a last good version
	awaitLines    = 10 * time.Second // interval of the lines that say so
	fromWorker    = "the worker before"
	waitForRemote = "configuration: none yet"
)

// Await waits until there is a version of each text: the one that the worker before had; or what the
// registry has; or if that does not answer, the last good one. Without any it waits until the registry
// answers. It reports false if a signal has ended it.
func (r *Remotes) Await(worker Before, log *slog.Logger) bool {
	if r == nil {
		return true
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, l := range r.layers {
		if l.damaged != nil {
			log.Error("the last good configuration cannot be used", "error", l.damaged)
		}
		if l.last.from == fromWorker && worker.Trusted() { // a planned restart may be for what the registry has now
			l.useUnconfirmed(l.last)
		}
	}
	patience := time.NewTimer(firstAnswer)
	defer patience.Stop()
	patient := true
	lines := time.NewTicker(awaitLines)
	defer lines.Stop()
	told := map[*remoteLayer]bool{}
	for {
		missing := 0
		for _, l := range r.layers {
			answered, failed := l.ready()
			if answered {
				continue
			}
			if (failed != nil || !patient) && l.last.from != "" {
				err := worker.Enter()
				if err == nil {
					l.useUnconfirmed(l.last)
					continue
				}
				l.last = lastGood{}
				log.Error("the configuration of the worker before cannot be used", "error", err)
			}
			if missing++; failed != nil && !told[l] {
				told[l] = true
				log.Warn(waitForRemote, "source", spec.RemoteName(l.path), "error", config.OneLine(failed))
				worker.Status(waitForRemote + ": " + config.OneLine(failed))
			}
		}
		if missing == 0 {
			return true
		}
		select {
		case <-r.changed:
		case <-patience.C:
			patient = false
		case <-lines.C:
			clear(told)
		case <-ctx.Done():
			return false
		}
	}
}

// ready takes the latest version, if there is one, and reports whether a version was taken.
func (r *remoteLayer) ready() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken.Version == "" && r.latest.Version != "" {
		r.taken = r.latest
	}
	return r.taken.Version != "", r.failed
}

// Take has the next Source.Load read the latest versions.
func (r *Remotes) Take() {
	if r != nil {
		for _, l := range r.layers {
			l.take()
		}
	}
}

// Settle says what has become of the versions that were taken. The error is that of writing them to disk.
func (r *Remotes) Settle(err error) (failed error) {
	if r == nil {
		return nil
	}
	for _, l := range r.layers {
		if write := l.settle(err); write.Version != "" {
			if err := l.file.write(&write); err != nil {
				failed = err
			}
		}
	}
	r.wake() // a refusal is to be told
	return failed
}

// Keep writes the versions whose trials ended well to disk.
func (r *Remotes) Keep() (failed error) {
	if r != nil {
		for _, l := range r.layers {
			if write := l.keep(); write.Version != "" {
				if err := l.file.write(&write); err != nil {
					failed = err
				}
			}
		}
	}
	return failed
}

// FallBack has the next Source.Load read the last good versions from disk instead of those that have
// just failed. It reports whether that makes a difference.
func (r *Remotes) FallBack(worker Before, err error) (differs bool) {
	if r == nil || worker.Enter() != nil {
		return false
	}
	for _, l := range r.layers {
		if l.last.from != "" && l.replace(err) {
			differs = true
		}
	}
	return differs
}

// replace refuses the version that was taken, if it is not the last good one, which is taken instead.
func (r *remoteLayer) replace(err error) bool {
	r.mu.Lock()
	same := sameText(&r.last.Layer, &r.taken)
	r.mu.Unlock()
	if same {
		return false
	}
	r.settle(err)
	r.useUnconfirmed(r.last)
	return true
}

// Pending returns what the log says about a version that is to be applied; empty: there is none.
func (r *Remotes) Pending() string {
	if r != nil {
		for _, l := range r.layers {
			if l.pending() {
				l.mu.Lock()
				defer l.mu.Unlock()
				return spec.RemoteName(l.path) + " has version " + l.latest.Version
			}
		}
	}
	return ""
}

// Status returns the state of the layers for the API.
func (r *Remotes) Status() (list []api.RemoteConfig) {
	if r != nil {
		for _, l := range r.layers {
			list = append(list, l.status())
		}
	}
	return list
}

// Tell logs that a registry does not answer, or that it answers again.
func (r *Remotes) Tell(event func(level slog.Level, subject, message string)) {
	if r == nil {
		return
	}
	for _, l := range r.layers {
		if w, ok := l.client.(interface{ warnings() []string }); ok {
			for _, text := range w.warnings() {
				event(slog.LevelWarn, spec.RemoteName(l.path), text)
			}
		}
		if level, message := l.news(); message != "" {
			event(level, spec.RemoteName(l.path), message)
		}
	}
}

// news returns what is new about whether the registry answers; nothing: an empty message.
func (r *remoteLayer) news() (slog.Level, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := ""
	if r.failed != nil {
		now = config.OneLine(r.failed)
	}
	if (now == "") == (r.told == "") {
		r.told = now // another error of the same failure is in the status
		return 0, ""
	}
	r.told = now
	if now == "" {
		return slog.LevelInfo, "the registry answers again"
	}
	return slog.LevelWarn, fmt.Sprintf("version %s%s goes on: %s", r.good.Version, r.describeOrigin(), now)
}

// describeOrigin says where the version that runs is from, if it is not from the registry. The caller holds the lock.
func (r *remoteLayer) describeOrigin() string {
	if r.saved == "" {
		return ""
	}
	text := " from " + r.saved
	if !r.good.At.IsZero() {
		text = " of " + r.good.At.Local().Format(time.DateTime) + text
	}
	return text
}
