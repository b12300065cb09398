package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/confine"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
)

// keeping is a worker's connection to its keeper, with what the keeper holds for the daemon itself. What it
// holds for the engine passes through to the engine.
//
//	connectKeeper ──▶ prepared ──▶ (the daemon starts) ──▶ restored ──▶ ready
type keeping struct {
	*keeper.Worker
	start   keeper.Start
	began   time.Time
	version string // of this program

	config *saved.Document // the last configuration that was applied
	// lastConfigs are those of the workers before, the latest first. They are there from the beginning.
	lastConfigs   [][]byte
	lastConfigErr error
	early         []keeper.Item // what was there from the beginning; Held does not return it again
	engine        []relay.Held
	others        map[string]keeper.Item // by label: what is held for other parts of the daemon
	counts        *counts.Memory         // of the counters
	kept          *kept                  // what is counted and known

	admin   []net.Listener // their paths stay unless the worker exits for good
	noAdmin error          // of the addresses of the admin listener that this worker cannot have

	before   *earlykeeper.Policy // of the worker before; nil: it is not known
	held     *confine.Held       // the sandbox that this process has entered before it looked at anything of the worker before; nil: none
	oomScore *os.File            // nil: it cannot be written

	ended       *saved.Document // the flows that ended last
	historyFile *saved.Document
	past        history // written when a worker starts
}

// The kinds of items that are the daemon's own: the highest byte of the key. Those below 128 are the
// engine's.
const (
	kindDocument = 128 + iota
	kindAdmin
	kindCounters
)

// The labels of the daemon's own items.
const (
	labelConfig  = earlykeeper.LabelConfig
	labelHistory = "history"
)

// connectKeeper returns the connection to the keeper that has started this process; nil: none has.
func connectKeeper() (*keeping, error) {
	w, err := keeper.Connect()
	if w == nil || err != nil {
		return nil, err
	}
	k := &keeping{Worker: w, start: w.Start(), began: time.Now(), version: version(), others: map[string]keeper.Item{}}
	k.oomScore, _ = os.OpenFile(ownOOMScore, os.O_WRONLY, 0)
	if k.before, err = sandboxBefore(w.Policy()); err == nil && k.unplanned() {
		err = k.enterBefore()
	}
	if err != nil && !errors.Is(err, errNotKnown) {
		return nil, err
	}
	if os.Getenv("LISTEN_FDS") != "" { // the sockets of the service manager, which the keeper passes on
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	k.early = k.Held()
	for _, item := range k.early {
		if item.Key[0]>>56 < kindDocument {
			k.engine = append(k.engine, relay.Held{Key: item.Key, Label: item.Label, FDs: item.FDs})
		}
	}
	k.lastConfigs, k.lastConfigErr = previewDocument(k.early, labelConfig)
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

// take sorts what has come from the keeper. Its descriptors belong to this process from then on.
func (k *keeping) take() {
	k.engine = nil
	for _, item := range append(k.early, k.Held()...) {
		if kind := item.Key[0] >> 56; kind < kindDocument {
			k.engine = append(k.engine, relay.Held{Key: item.Key, Label: item.Label, FDs: item.FDs})
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

func closeItem(item keeper.Item) {
	for _, fd := range item.FDs {
		os.NewFile(uintptr(fd), item.Label).Close()
	}
}

// first reports whether this is the first worker of its keeper.
func (k *keeping) first() bool { return k.start.Reason == keeper.First }

// document returns the document with a label: the one that is held, or a new one. With an error it ends with this worker, or is nil.
func (k *keeping) document(label string) (*saved.Document, error) {
	if item, ok := k.others[label]; ok {
		delete(k.others, label)
		d := saved.NewDocument(os.NewFile(uintptr(item.FDs[0]), label))
		_, err := d.Read()
		if err == nil || errors.Is(err, saved.ErrNoDocument) {
			return d, nil
		}
		d.Close() // damaged: begin anew
		k.Drop(item.Key)
	}
	f, err := host.MemoryFile(label)
	if err != nil {
		return nil, err
	}
	return saved.NewDocument(f), k.hold(kindDocument, label, f)
}

// hold gives the keeper a file to hold.
func (k *keeping) hold(kind uint64, label string, f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var held error
	if err := c.Control(func(fd uintptr) { held = k.holdFD(kind, label, int(fd)) }); err != nil {
		return err
	}
	return held
}

// holdFD gives the keeper a descriptor to hold. It is called before the engine is made, because an error of
// Flush is also that of whatever others have given to Hold.
func (k *keeping) holdFD(kind uint64, label string, fd int) error {
	key := [2]uint64{kind << 56, uint64(time.Now().UnixNano())}
	for {
		err := k.Hold(key, label, []int{fd})
		if err == nil {
			err = k.Flush()
		}
		switch {
		case err == nil, errors.Is(err, keeper.ErrLost): // without a keeper this worker can still relay
			return nil
		case !errors.Is(err, keeper.ErrBusy):
			return fmt.Errorf("have the keeper hold %s: %w", label, err)
		}
		time.Sleep(time.Millisecond) // it reads at once what it was sent
	}
}

// savedConfig is the document of the configuration.
type savedConfig struct {
	Source    string       `json:"source"`
	Text      []byte       `json:"text"`
	Written   []byte       `json:"written"`
	Token     string       `json:"token,omitempty"`
	ReadToken string       `json:"read_token,omitempty"`
	Layers    []spec.Layer `json:"layers,omitempty"`
	// Addresses are those of listeners on any free port, and of those whose host is a name, by listener.
	Addresses map[string]relay.Addr `json:"addresses,omitempty"`
}

// addressesBefore returns the addresses that listeners on any free port, or at a name, had in the worker before.
func (k *keeping) addressesBefore() map[string]relay.Addr {
	var s savedConfig
	if k == nil || len(k.lastConfigs) == 0 || json.Unmarshal(k.lastConfigs[0], &s) != nil {
		return nil
	}
	return s.Addresses
}

// layersBefore returns the texts from registries that the worker before had, by path.
func (k *keeping) layersBefore() map[string]spec.Layer {
	var s savedConfig
	if k == nil || len(k.lastConfigs) == 0 || json.Unmarshal(k.lastConfigs[0], &s) != nil {
		return nil
	}
	layers := make(map[string]spec.Layer, len(s.Layers))
	for _, l := range s.Layers {
		layers[l.Path] = l
	}
	return layers
}

// savedConfig returns the last configuration that a worker before this one has applied, or if this version
// cannot read that, the one before.
func (k *keeping) savedConfig() (cfg *spec.Config, err error) {
	err = k.lastConfigErr
	for _, text := range k.lastConfigs {
		if cfg, failed := parseSavedConfig(text); failed == nil {
			return cfg, nil
		} else if err == nil || errors.Is(err, saved.ErrNoDocument) {
			err = failed
		}
	}
	return nil, err
}

// savedConfigs returns the last configurations that this version can read, the latest first.
func (k *keeping) savedConfigs() (list []*spec.Config) {
	for _, text := range k.lastConfigs {
		if cfg, err := parseSavedConfig(text); err == nil {
			list = append(list, cfg)
		}
	}
	return list
}

func parseSavedConfig(text []byte) (*spec.Config, error) {
	var s savedConfig
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	cfg, err := config.Parse(s.Source, s.Text, rules.Everywhere...)
	if err != nil {
		return nil, err
	}
	cfg.Written, cfg.Admin.Token, cfg.Admin.ReadToken, cfg.Layers = s.Written, s.Token, s.ReadToken, s.Layers
	return cfg, nil
}

// saveConfig stores a configuration for the next worker.
func (k *keeping) saveConfig(cfg *spec.Config, bound map[bindKey]*hooks.Socket) error {
	if k == nil || k.config == nil {
		return nil
	}
	before, addresses := k.addressesBefore(), map[string]relay.Addr{}
	for _, l := range cfg.Listeners {
		b := bindKeyOf(l, 0)
		if b.freePortName == "" && !hasName(l) {
			continue
		}
		if p := bound[b]; p != nil {
			addresses[l.Name] = p.Addr()
		} else if was, ok := before[l.Name]; ok { // it is closed for now
			addresses[l.Name] = was
		}
	}
	text, err := json.Marshal(savedConfig{cfg.Source, cfg.Text, cfg.Written, cfg.Admin.Token, cfg.Admin.ReadToken, cfg.Layers, addresses})
	if err == nil {
		err = k.config.Write(text)
	}
	return err
}

// keepConfig returns the engine's configuration of what it keeps; nil: nothing.
func (k *keeping) keepConfig(cfg *spec.Keeper) *relay.Keep {
	if k == nil {
		return nil
	}
	after := time.Second
	if cfg != nil {
		after = cfg.KeepAfter
	}
	if after == 0 {
		after = -1 // at once
	}
	return &relay.Keep{After: after, Holder: k.Worker, Held: k.engine}
}

// passStdin makes a configuration that was read from standard input the standard input of the keeper and
// of its workers, as a file in memory.
func passStdin(source *config.Source) error {
	if source == nil {
		return nil
	}
	for path, text := range source.Passing() {
		if path != config.Stdin {
			return fmt.Errorf("%s cannot be read again, as each worker of a keeper does; allowed: files, folders, and - for standard input", path)
		}
		f, err := host.MemoryFile("stdin")
		if err == nil {
			_, err = f.Write(text)
		}
		if err == nil {
			err = host.UseAsStdin(f)
		}
		if err != nil {
			return fmt.Errorf("pass on standard input: %w", err)
		}
	}
	return nil
}

// becomeKeeper makes this process the keeper of a worker that runs the same command line. It returns only
// if that fails.
func becomeKeeper(cfg *spec.Keeper, log *spec.Log, source *config.Source, stderr *os.File) error {
	if err := passStdin(source); err != nil {
		return err
	}
	path, self, err := host.OwnBinary()
	if err != nil {
		return err
	}
	host.RaiseDescriptorLimit() // the keeper holds as many descriptors as the worker has
	s := settingsOf(cfg)
	s.Binary, s.LogFormat = path, log.Format
	if s.LogFormat == "auto" {
		switch s.LogFormat = "json"; {
		case logs.NewScreen(stderr) != nil:
			s.LogFormat = earlykeeper.LogForPerson
		case logs.IsTerminal(stderr):
			s.LogFormat = "text"
		}
	}
	if s.Inherited, err = systemd.Passed(os.Getenv, os.Getpid()); err != nil {
		return err
	}
	args := append([]string{"penstock: keeper"}, os.Args[1:]...)
	return fmt.Errorf("become the keeper: %w", host.Exec(self, args, append(os.Environ(), earlykeeper.Variable+"="+s.Text())))
}

func settingsOf(cfg *spec.Keeper) earlykeeper.Settings {
	return earlykeeper.Settings{Watchdog: cfg.Watchdog, StartTimeout: cfg.StartTimeout, HealthyAfter: cfg.HealthyAfter, MaxRestartDelay: cfg.MaxRestartDelay}
}

// setTimes tells the keeper the times of a configuration. It began with those of an earlier one.
func (k *keeping) setTimes(cfg *spec.Keeper) error {
	if k == nil || cfg == nil || !k.up() {
		return nil
	}
	s := settingsOf(cfg)
	return k.SetTimes(s.Times())
}

const labelAdmin = earlykeeper.LabelAdmin

// listenAdmin listens on one of the addresses of the admin listener: on the socket that the worker before had, or on a new
// one, which the keeper holds from then on.
func (k *keeping) listenAdmin(at spec.Endpoint, mode uint32) error {
	label := labelAdmin + at.String()
	item, held := k.others[label]
	if held {
		delete(k.others, label)
		f := os.NewFile(uintptr(item.FDs[0]), label)
		defer f.Close()
		if l, err := admin.Inherit(f, at, mode); err == nil {
			admin.LeavePath(l, true)
			k.admin = append(k.admin, l)
			return nil
		}
	}
	l, err := admin.Listen(at, mode)
	if err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	k.admin = append(k.admin, l)
	if held { // nobody can reach it: its path is gone
		k.Drop(item.Key)
	}
	f, err := admin.File(l)
	if err == nil {
		defer f.Close()
		err = k.hold(kindAdmin, label, f)
	}
	if err == nil {
		admin.LeavePath(l, true)
	}
	return err
}

// close closes the sockets of the admin listener.
func (k *keeping) close() {
	if k != nil {
		for _, l := range k.admin {
			l.Close()
		}
	}
}

// dropOthers closes what this worker has not taken over. An admin socket at another address is not held
// any longer; what only another version knows stays held for it. It is called when this process is in its sandbox, because the worker before
// chose the labels.
func (k *keeping) dropOthers() {
	if k == nil {
		return
	}
	for label, item := range k.others {
		closeItem(item)
		if url, ok := strings.CutPrefix(label, labelAdmin); ok {
			k.Drop(item.Key)
			if path, ok := strings.CutPrefix(url, "unix://"); ok {
				removeSocket(path)
			}
		}
	}
	clear(k.others)
}

// removeSocket removes the path of a socket, and nothing else.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		os.Remove(path)
	}
}
