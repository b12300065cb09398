package keeping

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/keeper"
)

// labelCounters is the label of the memory of the counters.
const labelCounters = "counters"

// counterLayouts are the tables of the counters' memory.
func counterLayouts() []counts.Layout {
	return append([]counts.Layout{account.Layout(), saved.ValuesLayout}, upstream.Layouts()...)
}

// openCounters returns the memory in which the worker before counted. If there is none, if it is damaged,
// or if another version has arranged it differently, there is new memory, with the same counts as far
// as possible; damaged memory is reported. After an error there is none. It is called before anybody counts.
func (k *Link) openCounters() (m *counts.Memory, damaged, err error) {
	item, ok := k.others[labelCounters]
	delete(k.others, labelCounters)
	var old *keeper.Memory
	if ok {
		if old, damaged = keeper.OpenMemory(item.FDs[0]); damaged == nil {
			m, damaged = counts.Open(old.Words())
		}
		switch {
		case damaged == nil && m.Fits(counterLayouts()...):
			return m, nil, nil
		case errors.Is(damaged, counts.ErrNew): // the worker before died too early
			damaged = nil
		}
	}
	memory, next, err := newCounters(m, counterLayouts())
	if err == nil {
		err = k.holdFD(kindCounters, labelCounters, memory.FD())
	}
	if err != nil {
		return nil, damaged, err
	}
	if ok {
		k.Drop(item.Key)
		if old != nil {
			old.Close()
		}
	}
	return next, damaged, nil
}

// newCounters returns new memory for tables with layouts, and with what m counts; nil: nothing.
func newCounters(m *counts.Memory, layouts []counts.Layout) (*keeper.Memory, *counts.Memory, error) {
	if m != nil {
		layouts = m.Extended(layouts...)
	}
	memory, err := keeper.NewMemory("penstock-counters", 8*counts.Size(layouts...))
	if err != nil {
		return nil, nil, err
	}
	next, err := counts.Create(memory.Words(), layouts...)
	if err != nil {
		memory.Close()
		return nil, nil, fmt.Errorf("memory of the counters: %w", err)
	}
	if m != nil {
		m.CopyTo(next)
	}
	return memory, next, nil
}

// CountsMemory returns the memory in which counters outlive this worker; nil: they are in the heap.
func (k *Link) CountsMemory() *counts.Memory { return k.counts }

// Counters returns the daemon's counters, in memory that the keeper holds if there is one.
func (k *Link) Counters() *account.Counters {
	if k.counts == nil {
		return account.NewCounters()
	}
	return account.OpenCounters(k.counts.Table(account.Layout().Name))
}
