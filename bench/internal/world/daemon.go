//go:build linux

package world

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// Daemon is a running penstock, with its keeper if it has one.
type Daemon struct {
	*trial.Daemon
	kept bool // it has a keeper
}

// logLine is one line of the daemon's log, or of what a dying process says.
type logLine struct {
	msg   string
	Attrs map[string]any
}

// Start runs the daemon with a configuration, and returns when it is ready.
func Start(binary, dir, config string, kept bool) (*Daemon, error) {
	return StartAt(binary, dir, filepath.Join(dir, "admin"), config, kept)
}

// StartAt is Start of one whose configuration has another admin listener.
func StartAt(binary, dir, admin, config string, kept bool) (*Daemon, error) {
	process, err := trial.NewDaemon(binary, dir, config)
	if err != nil {
		return nil, err
	}
	process.Socket = admin
	d := &Daemon{process, kept}
	d.Env = []string{"GOTRACEBACK=single"}
	d.Attr.Setpgid = true // a terminal's interrupt is for this process
	d.Timeout = Patience
	if err := d.Begin(); err != nil {
		return nil, err
	}
	if err := d.Ready(Patience); err != nil {
		d.Kill()
		return nil, err
	}
	return d, nil
}

// worker returns the process that carries the traffic: the keeper's youngest child that is alive.
func (d *Daemon) worker() (int, error) {
	if !d.kept {
		return d.First(), nil
	}
	alive := slices.DeleteFunc(proc.Tree(d.First())[1:], func(pid int) bool { return !proc.Alive(pid) })
	if len(alive) == 0 {
		return 0, errors.New("the keeper has no worker")
	}
	return slices.Max(alive), nil
}

// executes reports whether a child of the keeper executes its own binary. Before, its memory is the
// keeper's, which the kernel has wait for it (vfork(2)): to stop it is to stop the keeper.
func (d *Daemon) executes(pid int) bool {
	keeper, kerr := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.First()))
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return kerr == nil && err == nil && !bytes.Equal(keeper, child)
}

// KillWorker sends a signal to the worker, and returns when it is dead: for SIGSTOP, when the keeper
// has had enough of it. Every flow is told.
func (d *Daemon) KillWorker(w *World, sig syscall.Signal) error {
	pid, err := d.worker()
	if err != nil {
		return err
	}
	return d.killProcess(w, pid, sig)
}

// KillServing is KillWorker of the one that serves, also if there is another one that is about to take over: the keeper's oldest child that is
// alive.
func (d *Daemon) KillServing(w *World, sig syscall.Signal) error {
	for _, pid := range proc.Tree(d.First())[1:] {
		if proc.Alive(pid) {
			return d.killProcess(w, pid, sig)
		}
	}
	return errors.New("the keeper has no worker")
}

func (d *Daemon) killProcess(w *World, pid int, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if sig == syscall.SIGSTOP && !d.executes(pid) {
		return fmt.Errorf("the worker %d does not execute its binary yet", pid)
	}
	number := w.Kills.add(Kill{at: time.Now(), How: sig.String()})
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return err
	}
	if err := proc.WaitDead(fd, Patience); err != nil {
		return fmt.Errorf("worker %d, %v: %w", pid, sig, err)
	}
	w.died(number, time.Now())
	return nil
}

// Terminate ends the daemon as an operator does, and returns its exit code.
func (d *Daemon) Terminate() (int, error) {
	worker := -1
	if pid, err := d.worker(); err == nil {
		if worker, err = unix.PidfdOpen(pid, 0); err == nil {
			defer unix.Close(worker)
		}
	}
	before := len(d.Log())
	code, killed := d.Stop(Patience)
	switch {
	case killed:
		return -1, fmt.Errorf("the daemon has not ended %v after SIGTERM", Patience)
	case code < 0 && d.kept && worker >= 0:
		return d.endedAlone(worker, before)
	}
	return code, nil
}

// endedAlone returns the exit code of a worker whose keeper was ended by SIGTERM. That happens only while the keeper executes its
// new binary, and then its worker drains as if it had got the signal (docs/upgrades.md). This process is not the worker's parent, so
// the exit code is told by the daemon's log, from this line on.
func (d *Daemon) endedAlone(worker, line int) (int, error) {
	if err := proc.WaitDead(worker, Patience); err != nil {
		return -1, fmt.Errorf("a signal has ended the keeper, and its worker: %w", err)
	}
	for _, l := range d.Log()[line:] {
		switch l.Attrs["how"] {
		case "drained":
			return 0, nil
		case "deadline passed":
			return DrainedLate, nil
		}
	}
	return -1, errors.New("a signal has ended the keeper, and its worker has not drained")
}

// DrainedLate is the daemon's exit code if flows were open at the end of the drain: datagram flows are, which end only when
// they have been idle for long.
const DrainedLate = 3

// Log returns the lines of the daemon's log so far.
func (d *Daemon) Log() (lines []logLine) {
	f, err := os.Open(filepath.Join(d.Dir, "output"))
	if err != nil {
		return nil
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := logLine{msg: in.Text()}
		if json.Unmarshal(in.Bytes(), &line.Attrs) == nil {
			line.msg, _ = line.Attrs["msg"].(string)
		}
		lines = append(lines, line)
	}
	return lines
}

// Program is one that the daemon is upgraded to.
type Program struct {
	Name string
	Path string
	Bad  bool // it does not work, and nothing may come of it
}

// Upgrade upgrades the daemon to a binary, and sees to it that this works if the binary does.
func (d *Daemon) Upgrade(w *World, b Program) error {
	before, err := d.worker()
	if err != nil {
		return err
	}
	number := w.Kills.add(Kill{at: time.Now(), How: "upgrade", Plan: true})
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	var out []byte
	for {
		out, err = exec.CommandContext(ctx, d.Argv[0], "upgrade", "--admin", "unix://"+d.Socket, "--binary", b.Path).CombinedOutput()
		if err == nil || ctx.Err() != nil || !bytes.Contains(out, []byte("another upgrade is under way; nothing was changed")) {
			break
		}
		time.Sleep(100 * ms) // the keeper still replaces itself
	}
	after, werr := d.worker()
	w.died(number, time.Now())
	switch {
	case werr != nil:
		return fmt.Errorf("after the upgrade to %s: %w\n%s", b.Name, werr, out)
	case b.Bad && err == nil:
		w.Tally.Fault(OtherFaults, "upgrade to %s, which does not work: succeeded\n%s", b.Name, out)
	case b.Bad:
		w.Tally.Count(upgradesRefused, 1)
	case err != nil:
		w.Tally.Fault(OtherFaults, "upgrade to %s: %v\n%s", b.Name, err, out)
	case after == before:
		w.Tally.Fault(OtherFaults, "upgrade to %s: the worker is the same\n%s", b.Name, out)
	default:
		w.Tally.Count(upgradesDone, 1)
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", after)); err == nil && !strings.HasPrefix(exe, b.Path) && d.executes(after) { // not one that the keeper is about to start

			w.Tally.Fault(OtherFaults, "upgrade to %s: the worker runs %s", b.Path, exe)
		}
	}
	return nil
}
