//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
)

// program is one that the daemon is upgraded to.
type program struct {
	name string
	path string
	bad  bool // it does not work, and nothing may come of it
}

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
func (s *settings) binaries(dir string) (good, bad []program, err error) {
	other := program{name: "other", path: filepath.Join(dir, "penstock-other")}
	if err := s.buildFormat(other.path, "v99.0.0"); err != nil {
		return nil, nil, err
	}
	today := program{name: "today's", path: filepath.Join(dir, "penstock-today")}
	if err := trial.Build(today.path, s.buildFlags...); err != nil {
		return nil, nil, err
	}
	if good = []program{other, today}; s.format == requiredFormat {
		today.bad = true
		bad = append(bad, today)
		good[1] = program{name: "first", path: s.binary}
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
		bad = append(bad, program{name: name, path: filepath.Join(dir, name), bad: true})
	}
	return good, bad, nil
}

// upgradeAll upgrades the daemon as often as asked, there and back, and every so often to a binary that
// does not work.
func (s *settings) upgradeAll(w *world, d *daemon, r *rand.Rand) error {
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
		} else if b.name == running {
			b = good[(i+1)%len(good)]
		}
		if err := d.upgrade(w, b); err != nil {
			return err
		}
		if !b.bad {
			running = b.name
		}
		if s.show(w, i+1); d.Over() {
			return d.Failed()
		}
	}
	time.Sleep(2 * time.Second)
	return nil
}

// upgrade upgrades the daemon to a binary, and sees to it that this works if the binary does.
func (d *daemon) upgrade(w *world, b program) error {
	before, err := d.worker()
	if err != nil {
		return err
	}
	number := w.kills.add(kill{at: time.Now(), how: "upgrade", plan: true})
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var out []byte
	for {
		out, err = exec.CommandContext(ctx, d.Argv[0], "upgrade", "--admin", "unix://"+d.Socket, "--binary", b.path).CombinedOutput()
		if err == nil || ctx.Err() != nil || !bytes.Contains(out, []byte("another upgrade is under way; nothing was changed")) {
			break
		}
		time.Sleep(100 * ms) // the keeper still replaces itself
	}
	after, werr := d.worker()
	w.died(number, time.Now())
	switch {
	case werr != nil:
		return fmt.Errorf("after the upgrade to %s: %w\n%s", b.name, werr, out)
	case b.bad && err == nil:
		w.tally.count(otherFaults, 1)
		w.tally.fault("upgrade to %s, which does not work: succeeded\n%s", b.name, out)
	case b.bad:
		w.tally.count(upgradesRefused, 1)
	case err != nil:
		w.tally.count(otherFaults, 1)
		w.tally.fault("upgrade to %s: %v\n%s", b.name, err, out)
	case after == before:
		w.tally.count(otherFaults, 1)
		w.tally.fault("upgrade to %s: the worker is the same\n%s", b.name, out)
	default:
		w.tally.count(upgradesDone, 1)
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", after)); err == nil && !strings.HasPrefix(exe, b.path) {
			w.tally.count(otherFaults, 1)
			w.tally.fault("upgrade to %s: the worker runs %s", b.path, exe)
		}
	}
	return nil
}
