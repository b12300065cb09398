//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

// requiredFormat is the format of ledgers that today's version must refuse.
const requiredFormat = "required"

// The names of this program when it plays a binary that is no good.
const (
	exitsName = "penstock-exits"
	hangsName = "penstock-hangs"
)

// actBad plays a binary that is no good if this program was started as one.
func actBad() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	switch filepath.Base(exe) {
	case exitsName:
		fmt.Fprintln(os.Stderr, "this binary ends at once")
		os.Exit(7)
	case hangsName:
		time.Sleep(time.Hour)
		os.Exit(0)
	}
}

const (
	releaseFlag = "-X github.com/penstock/penstock/cmd/penstock/internal/app.release="
	formatFlag  = " -X github.com/penstock/penstock/internal/ledger.format="
)

// buildFormat makes a daemon of another version, whose ledgers have another format: see package ledger.
func (s *settings) buildFormat(path, release string) error {
	return trial.Build(path, append(s.buildFlags, "-ldflags", releaseFlag+release+formatFlag+s.format)...)
}

// binaries makes another version of the daemon, and those that do not work. If the ledgers of the other
// version have a feature that today's does not know, today's is one of them.
func (s *settings) binaries(dir string) (good, bad []world.Program, err error) {
	other := world.Program{Name: "other", Path: filepath.Join(dir, "penstock-other")}
	if err := s.buildFormat(other.Path, "v99.0.0"); err != nil {
		return nil, nil, err
	}
	today := world.Program{Name: "today's", Path: filepath.Join(dir, "penstock-today")}
	if err := trial.Build(today.Path, s.buildFlags...); err != nil {
		return nil, nil, err
	}
	if good = []world.Program{other, today}; s.format == requiredFormat {
		today.Bad = true
		bad = append(bad, today)
		good[1] = world.Program{Name: "first", Path: s.binary}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{exitsName, hangsName} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			return nil, nil, err
		}
		bad = append(bad, world.Program{Name: name, Path: filepath.Join(dir, name), Bad: true})
	}
	return good, bad, nil
}

// upgradeAll upgrades the daemon as often as asked, there and back, and every so often to a binary that
// does not work.
func (s *settings) upgradeAll(w *world.World, d *world.Daemon, r *rand.Rand) error {
	good, bad := s.good, s.bad
	time.Sleep(s.keepAfter + s.slack)
	running := ""
	for i := range s.upgrades {
		if s.interrupted() {
			break
		}
		time.Sleep(time.Duration(r.Int64N(int64(2*s.every) + 1)))
		b := good[i%len(good)]
		if i%10 == 9 {
			b = bad[i/10%len(bad)]
		} else if b.Name == running {
			b = good[(i+1)%len(good)]
		}
		if err := d.Upgrade(w, b); err != nil {
			return err
		}
		if !b.Bad {
			running = b.Name
		}
		if s.show(w, i+1); d.Over() {
			return d.Failed()
		}
	}
	time.Sleep(2 * time.Second)
	return nil
}
