package sources

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// fakeRegistry is a remoteClient whose registry is the test.
type fakeRegistry struct {
	deliver chan func(deliver func(spec.Layer, error))
	mu      sync.Mutex
	said    []string
}

func newFakeRegistry() *fakeRegistry {
	return &fakeRegistry{deliver: make(chan func(func(spec.Layer, error)))}
}

func (f *fakeRegistry) follow(ctx context.Context, deliver func(spec.Layer, error)) {
	for {
		select {
		case do := <-f.deliver:
			do(deliver)
		case <-ctx.Done():
			return
		}
	}
}

func (f *fakeRegistry) say(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, s)
}

func (f *fakeRegistry) applied(version string)          { f.say("applied " + version) }
func (f *fakeRegistry) refused(version string, _ error) { f.say("refused " + version) }

// has makes a version the present one, or an error, and waits until that is delivered.
func (f *fakeRegistry) has(l spec.Layer, err error) {
	done := make(chan struct{})
	f.deliver <- func(deliver func(spec.Layer, error)) { deliver(l, err); close(done) }
	<-done
}

func followed(t *testing.T, folder string) (*Remotes, *fakeRegistry) {
	f := newFakeRegistry()
	l := &remoteLayer{path: testRemote, client: f, file: newGoodFile(folder, testRemote)}
	l.last, l.damaged = l.file.read()
	r := &Remotes{changed: make(chan struct{}, 1), layers: []*remoteLayer{l}}
	r.start()
	t.Cleanup(r.Close)
	return r, f
}

// noWorker is the worker before the first one.
type noWorker struct{}

func (noWorker) Layers() map[string]spec.Layer { return nil }
func (noWorker) Trusted() bool                 { return true }
func (noWorker) Enter() error                  { return nil }
func (noWorker) Status(string)                 {}

var noLog = slog.New(slog.DiscardHandler)

// A version is applied once, a refused one is not tried again until another one came, and the disk has the last
// one that was applied.
func TestRemoteVersions(t *testing.T) {
	dir := t.TempDir()
	r, f := followed(t, dir)
	one, two, three := layerOf("1", "a"), layerOf("2", "b"), layerOf("3", "c")
	f.has(one, nil)
	if !r.Await(noWorker{}, noLog) {
		t.Fatal("a signal")
	}
	reload := func(err error) {
		t.Helper()
		r.Take()
		if _, failed := r.Text(testRemote); failed != nil {
			t.Fatal(failed)
		}
		if err := r.Settle(err); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(version string, pending, refused bool) {
		t.Helper()
		s := r.Status()[0]
		if s.Version != version || (r.Pending() != "") != pending || (s.Refused != nil) != refused {
			t.Errorf("%+v, pending: %q; want version %s, pending %t, refused %t", s, r.Pending(), version, pending, refused)
		}
	}
	reload(nil)
	runs("1", false, false)
	f.has(two, nil)
	runs("1", true, false)
	reload(errors.New("bad"))
	runs("1", false, true)
	if l, err := r.Text(testRemote); err != nil || !sameText(&l, &one) {
		t.Errorf("%+v, %v", l, err)
	}
	f.has(two, nil)
	runs("1", false, true)
	reload(errors.New("still bad")) // somebody asked for it
	f.has(spec.Layer{}, errors.New("away"))
	runs("1", false, true)
	f.has(three, nil)
	runs("1", true, true)
	reload(nil)
	runs("3", false, false)
	f.has(two, nil)
	runs("3", true, false)
	reload(errors.New("bad"))
	f.has(three, nil) // taken back
	runs("3", true, false)
	reload(nil) // so that nothing says that the last reload failed
	runs("3", false, false)
	reload(errors.New("a file is wrong"))
	runs("3", false, false)
	want := "applied 1, refused 2, refused 2, applied 3, refused 2, applied 3"
	if got := strings.Join(f.said, ", "); got != want {
		t.Errorf("the registry was told: %s, want %s", got, want)
	}
	if l, err := newGoodFile(dir, testRemote).read(); err != nil || !sameText(&l.Layer, &three) {
		t.Errorf("the disk has %+v, %v", l, err)
	}
}

// A relay starts with what the disk has if the registry does not answer, and takes what it has later.
func TestRemoteAway(t *testing.T) {
	dir := t.TempDir()
	one, two := layerOf("1", "a"), layerOf("2", "b")
	if err := newGoodFile(dir, testRemote).write(&one); err != nil {
		t.Fatal(err)
	}
	r, f := followed(t, dir)
	f.has(spec.Layer{}, errors.New("connection refused"))
	if !r.Await(noWorker{}, noLog) {
		t.Fatal("a signal")
	}
	r.Settle(nil)
	var told []string
	tell := func() string {
		told = nil
		r.Tell(func(_ slog.Level, _, message string) { told = append(told, message) })
		return strings.Join(told, "; ")
	}
	s := r.Status()[0]
	if s.Version != "1" || s.Error != "connection refused" || !strings.HasPrefix(s.Saved, dir) || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	if got := tell(); !strings.HasPrefix(got, "version 1 of 2026-11-2") || !strings.HasSuffix(got, ".yaml goes on: connection refused") {
		t.Errorf("the log has %q", got)
	}
	if got := tell(); got != "" {
		t.Errorf("the log has %q again", got)
	}
	f.has(one, nil)
	if s := r.Status()[0]; s.Error != "" || s.Saved != "" || r.Pending() != "" {
		t.Errorf("%+v, pending: %q", s, r.Pending())
	}
	if got := tell(); got != "the registry answers again" {
		t.Errorf("the log has %q", got)
	}
	f.has(two, nil)
	if r.Pending() == "" {
		t.Error("the new version is not pending")
	}
}

// What cannot be applied at the start is refused, and the last good version from the disk is used instead.
func TestRemoteFallBack(t *testing.T) {
	dir := t.TempDir()
	one, two := layerOf("1", "a"), layerOf("2", "b")
	if err := newGoodFile(dir, testRemote).write(&one); err != nil {
		t.Fatal(err)
	}
	r, f := followed(t, dir)
	f.has(two, nil)
	if !r.Await(noWorker{}, noLog) {
		t.Fatal("a signal")
	}
	if l, err := r.Text(testRemote); err != nil || !sameText(&l, &two) {
		t.Fatalf("%+v, %v", l, err)
	}
	if !r.FallBack(noWorker{}, errors.New("bad")) {
		t.Fatal("there is nothing to fall back to")
	}
	if l, err := r.Text(testRemote); err != nil || !sameText(&l, &one) {
		t.Fatalf("%+v, %v", l, err)
	}
	r.Settle(nil)
	if s := r.Status()[0]; s.Version != "1" || s.Refused == nil || s.Refused.Version != "2" || r.Pending() != "" {
		t.Errorf("%+v, pending: %q", s, r.Pending())
	}
	if r.FallBack(noWorker{}, errors.New("bad too")) {
		t.Error("fell back to what has failed")
	}
}

// A version that is being tried is written to disk only after its trial ended well.
func TestRemoteTrial(t *testing.T) {
	dir := t.TempDir()
	r, f := followed(t, dir)
	one, two := layerOf("1", "a"), layerOf("2", "b")
	disk := func(want string) {
		t.Helper()
		if err := r.Keep(); err != nil {
			t.Fatal(err)
		}
		if l, err := newGoodFile(dir, testRemote).read(); err != nil || l.Version != want {
			t.Errorf("the disk has version %q, %v; want %q", l.Version, err, want)
		}
	}
	apply := func(l spec.Layer) {
		t.Helper()
		f.has(l, nil)
		r.Take()
		if err := r.Settle(nil); err != nil {
			t.Fatal(err)
		}
	}
	tried := two
	tried.Trial = true
	apply(one)
	disk("1")
	apply(tried)
	disk("1")
	if s := r.Status()[0]; s.Version != "2" || !s.Trial {
		t.Errorf("%+v", s)
	}
	apply(one)
	disk("1")
	apply(tried)
	f.has(two, nil)
	if why := r.Pending(); why != "" {
		t.Errorf("pending: %s", why)
	}
	disk("2")
	if s := r.Status()[0]; s.Version != "2" || s.Trial {
		t.Errorf("%+v", s)
	}
}

// A registry that goes back to what runs is told that it runs, also if the reload fails because of something else: the
// client of a control plane waits for that.
func TestRemoteGoesBackWhileSomethingElseIsWrong(t *testing.T) {
	r, f := followed(t, "")
	one, two := layerOf("1", "a"), layerOf("2", "b")
	f.has(one, nil)
	if !r.Await(noWorker{}, noLog) {
		t.Fatal("a signal")
	}
	r.Settle(nil)
	f.has(two, nil)
	r.Take()
	r.Settle(errors.New("wrong"))
	f.has(one, nil)
	f.mu.Lock()
	f.said = nil
	f.mu.Unlock()
	r.Take()
	r.Settle(errors.New("another file is wrong"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.said) != 1 || f.said[0] != "applied 1" {
		t.Errorf("said: %q", f.said)
	}
}
