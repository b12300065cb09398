package keeping

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay/hold"
)

// Connect returns the link to the keeper that has started this process, or if none has, that of a process without one. version
// is that of this program.
func Connect(version string) (*Link, error) {
	k := Alone()
	w, err := keeper.Connect()
	if w == nil || err != nil {
		return k, err
	}
	k.Worker, k.present, k.start, k.version, k.manager.Through = w, true, w.Start(), version, w.Notify
	k.oomScore, _ = os.OpenFile(OwnOOMScore, os.O_WRONLY, 0)
	if k.before, err = sandboxBefore(w.Policy()); err == nil && k.Unplanned() {
		err = k.EnterBefore()
	}
	if err != nil && !errors.Is(err, ErrNotKnown) {
		return k, err
	}
	if os.Getenv("LISTEN_FDS") != "" { // the sockets of the service manager, which the keeper passes on
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	k.early = k.Held()
	for _, item := range k.early {
		if item.Key[0]>>56 < kindDocument {
			k.engine = append(k.engine, hold.Held{Key: item.Key, Label: item.Label, FDs: item.FDs})
		}
	}
	k.lastConfigs, k.lastConfigErr = previewDocument(k.early, labelConfig)
	k.lastConfigs = runBefore(k.lastConfigs, w.Policy())
	k.state.seen = reloadsBefore(k.early)
	return k, nil
}

// previewDocument reads a document of the worker before, which may still run. The descriptor belongs to
// the connection.
func previewDocument(items []keeper.Item, label string) ([][]byte, error) {
	for _, item := range items {
		if item.Label == label && len(item.FDs) > 0 {
			return saved.Preview(item.FDs[0])
		}
	}
	return nil, saved.ErrNoDocument
}

// reloadsBefore returns Reloads.Number of the worker before, which may still run; -1: it is not known, because the keeper is an older one.
func reloadsBefore(items []keeper.Item) int64 {
	if !slices.ContainsFunc(items, func(i keeper.Item) bool { return i.Label == labelState && len(i.FDs) > 0 }) {
		return -1
	}
	var before struct{ Reloads Reloads }
	if texts, err := previewDocument(items, labelState); err == nil {
		json.Unmarshal(texts[0], &before) // what cannot be read is not the same as what comes: then there is a reload too many
	}
	return before.Reloads.Number
}

// takeItems sorts what has come from the keeper. Its descriptors belong to this process from then on.
func (k *Link) takeItems() {
	k.engine = nil
	dropped := k.Dropped()
	for _, item := range append(k.early, k.Held()...) {
		if slices.Contains(dropped, item.Key) { // by the worker before, while this one was on standby
			closeItem(item)
			continue
		}
		if kind := item.Key[0] >> 56; kind < kindDocument {
			k.engine = append(k.engine, hold.Held{Key: item.Key, Label: item.Label, FDs: item.FDs})
			continue
		}
		if len(item.FDs) == 0 {
			continue // no room for it
		}
		if other, ok := k.others[item.Label]; ok { // an earlier worker died while it replaced the item
			if other.Key[1] > item.Key[1] {
				item, other = other, item
			}
			closeItem(other)
			k.Drop(other.Key)
		}
		k.others[item.Label] = item
	}
}

// Manager returns where the state of the daemon goes: with a keeper, through it, because the service
// manager listens to its main process only.
func (k *Link) Manager() *systemd.Manager { return &k.manager }

// GoesOn reports whether there were flows before this worker, so that it should start even with a
// configuration that is older than the file. An upgrade can be refused instead.
func (k *Link) GoesOn() bool {
	return k.Unplanned() || k.Replaced()
}

// Replaced reports whether the worker before has asked for this one.
func (k *Link) Replaced() bool { return k.start.Reason == keeper.Restart }

// Unplanned reports whether the worker before has died.
func (k *Link) Unplanned() bool {
	return k.start.Reason == keeper.Crash || k.start.Reason == keeper.Rollback
}

// GiveUp is called when this worker cannot start. The first one then ends the keeper too, so that the
// operator, or the service manager, gets the exit code. Of others the keeper learns why.
func (k *Link) GiveUp(err error) {
	if k.First() {
		k.Leaving()
		return
	}
	k.Failing(strings.ReplaceAll(strings.TrimPrefix(config.Message(err), "penstock: "), "\n", "; "))
}

// Leaving is called at the beginning of a planned end.
func (k *Link) Leaving() {
	k.Exiting()
	for _, l := range k.admin {
		admin.LeavePath(l, false)
	}
}

// Prepare says that this worker is able to run, waits until the one before has ended, and takes over
// what that had. It listens on the addresses of the admin listener.
func (k *Link) Prepare(cfg *spec.Config, log *slog.Logger) error {
	if k.Present() {
		if err := k.takeOver(cfg, log); err != nil {
			return err
		}
	}
	for _, at := range cfg.Admin.Listen {
		err := k.listenAdmin(at, cfg.Admin.Mode)
		if err != nil && k.First() {
			return err
		} else if err != nil {
			k.NoAdmin = errors.Join(k.NoAdmin, err)
		}
	}
	return nil
}

// takeOver is the part of Prepare with a keeper.
func (k *Link) takeOver(cfg *spec.Config, log *slog.Logger) error {
	info := "penstock " + k.version
	if cfg.Source != "" {
		info += ", configuration " + cfg.Source + ": good"
	}
	if err := hold.Check(k.engine); err != nil && !k.GoesOn() {
		return err // the worker before still runs, and all flows would be lost
	}
	if err := k.Prepared(info); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	k.start = k.Start()
	k.takeItems()
	var err error
	for _, d := range []struct {
		to    **saved.Document
		label string
	}{{&k.config, labelConfig}, {&k.historyFile, labelHistory}, {&k.ended.file, labelEnded}, {&k.Records, labelRecords}} {
		if *d.to, err = k.openDocument(d.label); err != nil && (k.First() || *d.to == nil) {
			return err
		} else if err != nil { // flows are more important
			log.Error("the next worker does not get what this one saves", "document", d.label, "error", err)
		}
	}
	k.past = readHistory(k.historyFile)
	if k.First() {
		k.saveHistory() // its beginning
	}
	var damaged error
	if k.counts, damaged, err = k.openCounters(); err != nil && k.First() {
		return err
	} else if err != nil {
		log.Error("counters begin at 0 and end with this worker", "error", err)
	}
	if damaged != nil {
		log.Error("counters begin at 0, because those of the worker before are damaged", "error", damaged)
	}
	if k.counts != nil {
		k.Values = saved.NewValues(k.counts.Table(saved.ValuesLayout.Name))
	}
	k.openState(log)
	return nil
}

// openState reads what the worker before had, or begins anew. Nothing that goes wrong keeps the worker from starting.
func (k *Link) openState(log *slog.Logger) {
	var err error
	if k.state.file, err = k.openDocument(labelState); err == nil {
		k.state.before, err = readState(k.state.file)
	}
	if err != nil {
		log.Warn("what the worker before knew of members cannot be used", "error", err)
	}
}

// inVain is how many workers die, one after the other, until what they were to take over for is given up.
const inVain = 3

// NotReplaced returns the restart for which the worker before was to take over, if it gave up, or if one after the other has died so that
// another one would be in vain, too; nil: there is no such restart. Whoever wanted it is told so, and no next one is asked for.
func (k *Link) NotReplaced() *keeper.Upgrade {
	u, died := k.start.Upgrade, k.start.Died
	gaveUp := died.Code != 0 && died.Why != "" // see GiveUp
	if k.start.Reason == keeper.Crash && u.Restart && u.State == keeper.RolledBack && (gaveUp || k.start.Restarts >= inVain) {
		return &u
	}
	return nil
}

// DiedYoung reports whether the worker before has died soon after a change of the configuration for which it had taken over.
// It is called before this start is added to the history.
func (k *Link) DiedYoung() bool {
	u, last := k.start.Upgrade, k.past.Last
	return k.start.Reason == keeper.Crash && u.Restart && u.State == keeper.RolledBack && last != nil && last.Reason == keeper.Restart.String()
}
