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

// A dockerSource finds members among the containers of a Docker daemon. It lists them, and again after each event.
type dockerSource struct {
	sources *Sources
	what    spec.Discover
}

func (s dockerSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	s.sources.watch(ctx, s.what, update, s.follow)
}

func (s dockerSource) follow(ctx context.Context, f *feed) {
	w := &dockerWatch{asker: asker{sources: s.sources, what: s.what, feed: f}, stopping: map[string]bool{}}
	defer w.close()
	for ctx.Err() == nil {
		err := w.round(ctx)
		if ctx.Err() == nil {
			remote.Sleep(ctx, w.handle(err))
		}
	}
}

// A dockerWatch is a dockerSource that is watched.
type dockerWatch struct {
	asker
	mu       sync.Mutex
	stopping map[string]bool // containers that have got a signal to stop, by ID
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
	changed := make(chan struct{}, 1)
	var reader sync.WaitGroup
	reader.Go(func() { cancel(w.readEvents(ctx, events, changed)) })
	defer reader.Wait()
	defer events.Close()
	for {
		if err := w.list(ctx); err != nil {
			return causeOf(ctx, err)
		}
		w.failed.Working()
		remote.Sleep(ctx, defaultInterval)
		select {
		case <-changed:
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
func (w *dockerWatch) readEvents(ctx context.Context, events io.Reader, changed chan<- struct{}) error {
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
		select {
		case changed <- struct{}{}:
		default:
		}
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

// list lists the containers, and tells the members that they make.
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
	if err := w.tell(list); err != nil {
		return err
	}
	w.feed.connected()
	return nil
}
