package app

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/keeper"
)

// labelCounters is the label of the memory of the counters.
const labelCounters = "counters"

// counterLayouts are the tables of the counters' memory.
func counterLayouts() []counts.Layout {
	return append([]counts.Layout{account.Layout(), valuesLayout}, upstream.Layouts()...)
}

// openCounters returns the memory in which the worker before counted. If there is none, if it is damaged,
// or if another version has arranged it differently, there is new memory, with the same counts as far
// as possible; damaged memory is reported. It is called before anybody counts.
func (k *keeping) openCounters() (m *counts.Memory, damaged, err error) {
	layouts := counterLayouts()
	var old *keeper.Memory
	item, ok := k.others[labelCounters]
	delete(k.others, labelCounters)
	if ok {
		if old, damaged = keeper.OpenMemory(item.FDs[0]); damaged == nil {
			m, damaged = counts.Open(old.Words())
		}
		switch {
		case damaged != nil && !errors.Is(damaged, counts.ErrNew):
			m = nil
		case damaged == nil && m.Fits(layouts...):
			return m, nil, nil
		case damaged == nil:
			layouts = m.Extended(layouts...)
		default:
			m, damaged = nil, nil
		}
	}
	memory, err := keeper.NewMemory("penstock-counters", 8*counts.Size(layouts...))
	if err != nil {
		return nil, damaged, err
	}
	next, err := counts.Create(memory.Words(), layouts...)
	if err != nil {
		return nil, damaged, fmt.Errorf("memory of the counters: %w", err)
	}
	if m != nil {
		m.CopyTo(next)
	}
	if err := k.holdFD(kindCounters, labelCounters, memory.FD()); err != nil {
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

// counters returns the daemon's counters, in memory that the keeper holds if there is one.
func (k *keeping) counters() *account.Counters {
	if k == nil {
		return account.NewCounters()
	}
	return account.OpenCounters(k.counts.Table(account.Layout().Name))
}
