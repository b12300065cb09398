package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

const (
	maxDockerAnswer = 1 << 26 // bytes; it is read container by container
	maxContainer    = 1 << 20 // bytes of a container, or an event
	maxContainers   = 1 << 14
	// dockerResync is how often containers are listed if no event says so: a daemon that hangs is noticed so.
	dockerResync = 30 * time.Second
)

// dockerEvents are the events after which containers are listed again.
var dockerEvents = url.Values{"filters": {`{"type":["container","network"],"event":["start","die","kill","stop","pause","unpause","rename","health_status","connect","disconnect"]}`}}

// dockerContainers are the running containers that are members of a group.
var dockerContainers = url.Values{"filters": {`{"label":["` + dockerLabel + dockerGroup + `"],"status":["running"]}`}}

// stopSignals are those by which images are stopped: SIGINT, SIGQUIT (nginx), SIGTERM, SIGWINCH (httpd), SIGRTMIN+3 (systemd), and what
// comes if that does not help, SIGKILL.
var stopSignals = []string{"2", "3", "15", "28", "37", "9"}

// A dockerSource finds members among the containers of a Docker daemon. The sources of a daemon share a dockerWatch.
type dockerSource struct {
	sources *Sources
	what    spec.Discover
}

func (s dockerSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	s.sources.watch(ctx, s.what, update, s.follow)
}

func (s dockerSource) follow(ctx context.Context, f *feed) {
	leave := s.sources.joinDocker(s.what.Registry, f)
	<-ctx.Done()
	leave()
}

// joinDocker has a feed told by the watch of a daemon, until the caller calls leave. The last one to leave waits until the watch has ended.
func (s *Sources) joinDocker(r spec.Registry, f *feed) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.docker[r]
	if w == nil {
		w = &dockerWatch{feeds: map[*feed]bool{}, stopping: map[string]bool{}, changed: make(chan struct{}, 1)}
		w.asker = asker{sources: s, registry: r, report: w.lost}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { w.run(ctx) })
		w.end = func() {
			cancel()
			running.Wait()
		}
		if s.docker == nil {
			s.docker = make(map[spec.Registry]*dockerWatch)
		}
		s.docker[r] = w
	}
	w.join(f)
	return func() {
		s.mu.Lock()
		last := w.leave(f)
		if last {
			delete(s.docker, r)
		}
		s.mu.Unlock()
		if last {
			w.end()
		}
	}
}

// A dockerWatch lists the containers of a daemon, and again after each event, and tells feeds of them.
type dockerWatch struct {
	asker
	end     func()        // ends the watch, and waits until it has ended
	changed chan struct{} // has an element if containers are to be listed

	mu       sync.Mutex
	feeds    map[*feed]bool
	err      error           // why the daemon does not answer; nil if it does, or was not asked yet
	stopping map[string]bool // containers that have got a signal to stop, by ID
}

// join adds a feed, and has the containers listed for it.
func (w *dockerWatch) join(f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.feeds[f] = true
	if w.err != nil {
		f.failed(w.err)
	}
	w.change()
}

// leave removes a feed, which is told nothing more, and reports whether it was the last one.
func (w *dockerWatch) leave(f *feed) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.feeds, f)
	return len(w.feeds) == 0
}

// lost tells why the daemon does not answer.
func (w *dockerWatch) lost(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	for f := range w.feeds {
		f.failed(err)
	}
}

// change has the containers listed.
func (w *dockerWatch) change() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *dockerWatch) run(ctx context.Context) {
	defer w.close()
	for ctx.Err() == nil {
		err := w.round(ctx)
		if ctx.Err() == nil {
			remote.Sleep(ctx, w.handle(err))
		}
	}
}

// round follows the daemon's events until that fails.
func (w *dockerWatch) round(ctx context.Context) error {
	if err := w.connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(answerTimeout, func() { cancel(errSlow) })
	events, err := w.get(ctx, "/events", dockerEvents)
	slow.Stop()
	if err != nil {
		return err
	}
	var reader sync.WaitGroup
	reader.Go(func() { cancel(w.readEvents(ctx, events)) })
	defer reader.Wait()
	defer events.Close()
	for {
		if err := w.list(ctx); err != nil {
			return causeOf(ctx, err)
		}
		w.failed.Working()
		remote.Sleep(ctx, defaultInterval)
		select {
		case <-w.changed:
		case <-time.After(dockerResync):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// get makes a request, and returns the body of its answer.
func (w *dockerWatch) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	request, token, err := w.request(ctx, path, query)
	if err != nil {
		return nil, err
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	if err := checkAnswer(answer, token); err != nil {
		answer.Body.Close()
		return nil, err
	}
	return answer.Body, nil
}

// A dockerEvent is what is read of an event.
type dockerEvent struct {
	Type, Action string
	Actor        struct {
		ID         string
		Attributes struct{ Signal string }
	}
}

var errEventsEnd = errors.New("the daemon has ended its events")

// readEvents tells of changes until events end, and returns why they do.
func (w *dockerWatch) readEvents(ctx context.Context, events io.Reader) error {
	item := &remote.BoundedReader{R: events}
	d := json.NewDecoder(item)
	var pace pace
	for {
		item.Left = maxContainer
		var e dockerEvent
		at := d.InputOffset()
		if err := d.Decode(&e); err == io.EOF {
			return errEventsEnd
		} else if err != nil {
			return fmt.Errorf("events: %w", causeOf(ctx, err))
		}
		w.note(&e)
		w.change()
		if err := pace.wait(ctx, d.InputOffset()-at); err != nil {
			return err
		}
	}
}

// note remembers which containers are being stopped.
func (w *dockerWatch) note(e *dockerEvent) {
	if e.Type != "container" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Action == "kill" && slices.Contains(stopSignals, e.Actor.Attributes.Signal) && len(w.stopping) < maxContainers:
		w.stopping[e.Actor.ID] = true
	case e.Action == "die", e.Action == "start":
		delete(w.stopping, e.Actor.ID)
	}
}

// list lists the containers, and tells each feed the members that they make.
func (w *dockerWatch) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errSlow)
	defer cancel()
	answer, err := w.get(ctx, "/containers/json", dockerContainers)
	if err != nil {
		return err
	}
	defer answer.Close()
	list, err := readElements[container](&remote.BoundedReader{R: answer, Left: maxDockerAnswer}, maxContainer, maxContainers)
	if err != nil {
		return fmt.Errorf("list of containers: %w", causeOf(ctx, err))
	}
	w.tell(list)
	return nil
}
