package keeping

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay/hold"
)

// A Link is a worker's connection to its keeper, with what the keeper holds for the daemon itself. What it
// holds for the engine passes through to the engine. The link of a process without a keeper has nobody at its other end, and what is
// written to it ends with the process.
//
//	Connect ──▶ prepared ──▶ (the daemon starts) ──▶ restored ──▶ ready
type Link struct {
	*keeper.Worker      // if there is no keeper, one that does nothing, and whose calls fail
	present        bool // there is, or was, a keeper
	start          keeper.Start
	Began          time.Time
	version        string          // of this program
	manager        systemd.Manager // told through the keeper, if there is one

	state
	ended

	config    *saved.Document // the last configuration that was applied
	policySum string          // of what the keeper knows as this process's policy; set before a configuration is saved
	// lastConfigs are those of the workers before, that of the last one that was ready first. They are there from the beginning.
	lastConfigs   [][]byte
	lastConfigErr error
	early         []keeper.Item // what was there from the beginning; Held does not return it again
	engine        []hold.Held
	keep          *hold.Keep             // of the engine
	others        map[string]keeper.Item // by label: what is held for other parts of the daemon
	counts        *counts.Memory         // of the counters

	admin   []net.Listener // their paths stay unless the worker exits for good
	NoAdmin error          // of the addresses of the admin listener that this worker cannot have

	before   *earlykeeper.Policy // of the worker before; nil: it is not known
	held     *sandboxneeds.Held  // the sandbox that this process has entered before it looked at anything of the worker before; nil: none
	oomScore *os.File            // nil: it cannot be written

	// Values are counters that go on in the next worker.
	Values *saved.Values

	// Records are those of flows that the worker before has left for a collector.
	Records *saved.Document

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
	return &Link{Worker: &keeper.Worker{}, Began: time.Now(), others: map[string]keeper.Item{}, Values: saved.NewValues(counts.Heap(saved.ValuesLayout))}
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
func (k *Link) Present() bool { return k.present }

// Started says why this worker was started, and what became of the one before.
func (k *Link) Started() keeper.Start { return k.start }

// Up reports whether there is a keeper.
func (k *Link) Up() bool {
	select {
	case <-k.Lost():
		return false
	default:
		return k.Present()
	}
}

// First reports whether nothing was left to this process: it is the first worker of its keeper, or has none.
func (k *Link) First() bool { return k.start.Reason == keeper.First }

// openDocument returns the document with a label: the one that is held, or a new one. With an error it ends with this worker, or is nil.
func (k *Link) openDocument(label string) (*saved.Document, error) {
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
	return saved.NewDocument(f), k.holdFile(kindDocument, label, f)
}

// holdFile gives the keeper a file to hold.
func (k *Link) holdFile(kind uint64, label string, f *os.File) error {
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
func (k *Link) KeepConfig(cfg *spec.Keeper) *hold.Keep {
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
	k.keep = &hold.Keep{After: after, Holder: k.Worker, Held: k.engine}
	return k.keep
}
