package keeping

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/confine"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
)

// A Link is a worker's connection to its keeper, with what the keeper holds for the daemon itself. What it
// holds for the engine passes through to the engine. The link of a process without a keeper has nobody at its other end, and what is
// written to it ends with the process.
//
//	Connect ──▶ prepared ──▶ (the daemon starts) ──▶ restored ──▶ ready
type Link struct {
	*keeper.Worker // nil: there is no keeper
	start          keeper.Start
	Began          time.Time
	version        string // of this program

	config *saved.Document // the last configuration that was applied
	// lastConfigs are those of the workers before, the latest first. They are there from the beginning.
	lastConfigs   [][]byte
	lastConfigErr error
	early         []keeper.Item // what was there from the beginning; Held does not return it again
	engine        []relay.Held
	others        map[string]keeper.Item // by label: what is held for other parts of the daemon
	counts        *counts.Memory         // of the counters
	state         state                  // what is known

	admin   []net.Listener // their paths stay unless the worker exits for good
	NoAdmin error          // of the addresses of the admin listener that this worker cannot have

	before   *earlykeeper.Policy // of the worker before; nil: it is not known
	held     *confine.Held       // the sandbox that this process has entered before it looked at anything of the worker before; nil: none
	oomScore *os.File            // nil: it cannot be written

	// Values are counters that go on in the next worker.
	Values *saved.Values

	ended       *saved.Document // the flows that ended last
	endedBefore func() Ended    // reads what the worker before has left there, once
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

// Alone returns the link of a process without a keeper.
func Alone() *Link {
	k := &Link{Began: time.Now(), others: map[string]keeper.Item{}, Values: saved.NewValues(counts.Heap(saved.ValuesLayout))}
	k.endedBefore = sync.OnceValue(k.readEnded)
	return k
}

// Connect returns the link to the keeper that has started this process, or if none has, that of a process without one. version
// is that of this program.
func Connect(version string) (*Link, error) {
	k := Alone()
	w, err := keeper.Connect()
	if w == nil || err != nil {
		return k, err
	}
	k.Worker, k.start, k.version = w, w.Start(), version
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
func (k *Link) take() {
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

// OwnOOMScore is opened before the process is in its sandbox.
const OwnOOMScore = "/proc/self/oom_score_adj"

// OOMScore is this process's score for the OOM killer, to be raised above the keeper's; nil: it cannot be, or there is no keeper.
func (k *Link) OOMScore() io.Writer {
	if k.oomScore == nil {
		return nil
	}
	return k.oomScore
}

// Present reports whether there is, or was, a keeper.
func (k *Link) Present() bool { return k.Worker != nil }

// Started says why this worker was started, and what became of the one before.
func (k *Link) Started() keeper.Start { return k.start }

// Lost is closed when the keeper is gone; without one, it never is.
func (k *Link) Lost() <-chan struct{} {
	if !k.Present() {
		return nil
	}
	return k.Worker.Lost()
}

// First reports whether nothing was left to this process: it is the first worker of its keeper, or has none.
func (k *Link) First() bool { return k.start.Reason == keeper.First }

// document returns the document with a label: the one that is held, or a new one. With an error it ends with this worker, or is nil.
func (k *Link) document(label string) (*saved.Document, error) {
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
func (k *Link) hold(kind uint64, label string, f *os.File) error {
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
func (k *Link) holdFD(kind uint64, label string, fd int) error {
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

// KeepConfig returns the engine's configuration of what it keeps; nil: nothing.
func (k *Link) KeepConfig(cfg *spec.Keeper) *relay.Keep {
	if !k.Present() {
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
