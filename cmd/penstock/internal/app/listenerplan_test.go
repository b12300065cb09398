package app

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// What is never in a configuration is never in the engine, where 0 is a default.
func TestTimeouts(t *testing.T) {
	if got, want := timeouts(spec.Timeouts{Connect: time.Second}), (relay.Timeouts{Connect: time.Second, Idle: -1, HalfClosed: -1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	all := spec.Timeouts{Connect: 1, FirstByte: 2, Idle: 3, HalfClosed: 4, Life: 5}
	if got, want := timeouts(all), (relay.Timeouts{Connect: 1, FirstByte: 2, Idle: 3, HalfClosed: 4, Life: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A listener keeps its socket for as long as its address stays, and one that asks
// for a free port for as long as its name does.
func TestBindKey(t *testing.T) {
	parse := func(s string) spec.Endpoint {
		e, err := spec.ParseListener(s)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	a := &spec.Listener{Name: "a", Listen: parse("tcp://127.0.0.1:80")}
	b := &spec.Listener{Name: "b", Listen: parse("tcp://127.0.0.1:80")}
	if bindKeyOf(a, 0) != bindKeyOf(b, 0) {
		t.Error("a name makes another socket")
	}
	b.Interface = "lo"
	if bindKeyOf(a, 0) == bindKeyOf(b, 0) {
		t.Error("an interface makes no other socket")
	}
	free, other := &spec.Listener{Name: "a", Listen: parse("tcp://127.0.0.1:0")}, &spec.Listener{Name: "b", Listen: parse("tcp://127.0.0.1:0")}
	if bindKeyOf(free, 0) == bindKeyOf(other, 0) {
		t.Error("two free ports are one")
	}
}

// watchPath watches a configuration file, which need not be valid.
func watchPath(path string) (*fileWatch, error) {
	s := &config.Source{Paths: []string{path}}
	s.Load()
	return watchFiles(s)
}

// A file that is written in place, or replaced by renaming, or by way of a link to a
// folder, has changed; once for each time.
func TestWatchFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "penstock.yaml")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "a")
	w, err := watchPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	changed := func(how string) {
		t.Helper()
		select {
		case <-w.changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("no change: %s", how)
		}
	}
	write(path, "b")
	changed("written in place")
	write(path+".new", "c")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	changed("replaced")

	// By way of a link: its target is written, and another one takes its place.
	far := t.TempDir()
	target, link := filepath.Join(far, "real.yaml"), filepath.Join(dir, "link.yaml")
	write(target, "a")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	linked, err := watchPath(link)
	if err != nil {
		t.Fatal(err)
	}
	defer linked.close()
	w, own := linked, w
	write(target, "b")
	changed("the target of a link is written")
	other := filepath.Join(t.TempDir(), "other.yaml")
	write(other, "c")
	if err := errors.Join(os.Symlink(other, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	changed("the link leads elsewhere")
	write(other, "d")
	changed("the new target is written")

	// By way of a link of a folder on the way to the target of a link, as with a volume of Kubernetes
	// and a link of one's own to it.
	volume := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(volume, version), 0o755); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(volume, version, "c.yaml"), version)
	}
	data := filepath.Join(volume, "..data")
	indirect := filepath.Join(dir, "indirect.yaml")
	if err := errors.Join(os.Symlink("1", data), os.Symlink(filepath.Join(data, "c.yaml"), indirect)); err != nil {
		t.Fatal(err)
	}
	if w, err = watchPath(indirect); err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := errors.Join(os.Symlink("2", data+".new"), os.Rename(data+".new", data)); err != nil {
		t.Fatal(err)
	}
	changed("a link of a folder on the way leads elsewhere")
	write(filepath.Join(volume, "2", "c.yaml"), "3")
	changed("the file that it leads to is written")
	w = own
	none, err := watchFiles(nil)
	if err != nil {
		t.Fatal(err)
	}
	none.close()
}

// What every reload may leave for the next start is told.
func TestKeysNeedingRestart(t *testing.T) {
	parse := func(text string) *spec.Config {
		c, err := config.Parse("x", []byte(text+"\nlisteners: {a: {listen: 'tcp://:1', to: 'echo:'}}"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := parse("engine: {loops: 1}\nlog: {format: text, level: info}\nkeeper: none")
	next := parse("engine: {loops: 2}\nlog: {format: json, level: debug}\nadmin: {listen: 'unix:///x'}\nkeeper: {}")
	got := (&daemon{}).later(config.Compare(old, next)).service
	want := map[string]bool{"engine.loops": true, "log.format": true, "admin.listen": true, "keeper": true}
	for _, k := range got {
		if !want[k] {
			t.Errorf("%s needs no restart", k)
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("%v need one, and it was not told: %v", want, got)
	}
	kept := keepUntilRestart(old, next)
	if got := (&daemon{}).later(config.Compare(old, kept)).service; len(got) > 0 {
		t.Errorf("%v are said to have changed", got)
	}
	if kept.Log.Level != "debug" || next.Engine.Loops != 2 {
		t.Errorf("%+v, %+v", kept.Log, next.Engine)
	}
	// Of a keeper that stays, the times are told to it, and what the engine does for it stays.
	old, next = parse("keeper: {keep-after: 1s}"), parse("keeper: {keep-after: 2s, watchdog: 3s, max-restart-delay: 4s}")
	kept = keepUntilRestart(old, next)
	want2 := *next.Keeper
	want2.KeepAfter = old.Keeper.KeepAfter
	if *kept.Keeper != want2 || old.Keeper.Watchdog == want2.Watchdog || next.Keeper.KeepAfter == want2.KeepAfter {
		t.Errorf("%+v, want %+v", kept.Keeper, want2)
	}
	if kept := keepUntilRestart(old, parse("keeper: none")); kept.Keeper == nil || *kept.Keeper != *old.Keeper {
		t.Errorf("%+v", kept.Keeper)
	}
}

// The options of a group are set on the sockets of its checks.
func TestDialControl(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		dial spec.Dial
		want error
	}{"lo": {spec.Dial{Interface: "lo"}, nil}, "none": {spec.Dial{Interface: "no-such-device"}, syscall.ENODEV}} {
		d := net.Dialer{Control: host.DialControl(&c.dial)}
		conn, err := d.Dial("tcp", l.Addr().String())
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	if host.DialControl(&spec.Dial{}) != nil {
		t.Error("options where there are none")
	}
}

// Included files and folders are watched as well, those too that do not exist yet.
func TestWatchIncluded(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("conf.d/a.yaml", "drain: 1s")
	write("main.yaml", "include: [conf.d, late.yaml]")
	w, err := watchPath(filepath.Join(dir, "main.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, step := range []struct {
		how string
		do  func()
	}{
		{"an included file is written", func() { write("conf.d/a.yaml", "drain: 2s") }},
		{"a file is added to the folder", func() { write("conf.d/b.yaml", "log: {}") }},
		{"a file is removed from the folder", func() { os.Remove(filepath.Join(dir, "conf.d/b.yaml")) }},
		{"a missing file is made", func() { write("late.yaml", "") }},
	} {
		step.do()
		select {
		case <-w.changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("no change: %s", step.how)
		}
	}
	write("conf.d/README", "")
	write("other.yaml", "")
	select {
	case <-w.changed:
		t.Error("a change of a file that is not read counts")
	case <-time.After(3 * watchDebounce):
	}
}
