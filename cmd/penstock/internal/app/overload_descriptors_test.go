package app

import (
	"testing"

	"github.com/penstock/penstock/relay/stats"
)

func TestDescriptorOverload(t *testing.T) {
	s := stats.Engine{LoopsPaused: 1, Descriptors: stats.Descriptors{Limit: 256, InUse: 240, Reserved: 16, Waits: 7, LoopsPaused: 1}}
	r, a := descriptorOverload(&s)
	if r.Limit != 240 || r.Use != 240 || r.Pressure != 1 || !a.Active || a.Count != 7 || a.Resource != r.Name {
		t.Errorf("%+v, %+v", r, a)
	}
	s.Descriptors.LoopsPaused = 0
	if _, a := descriptorOverload(&s); a.Active {
		t.Errorf("active, and no loop is paused for want of descriptors: %+v", a)
	}
	s.Descriptors.InUse, s.Descriptors.LoopsPaused = 190, 2
	if _, a := descriptorOverload(&s); !a.Active {
		t.Errorf("not active, though clients wait, because the rest is for datagrams: %+v", a)
	}
	if r, _ := descriptorOverload(&stats.Engine{}); r.Pressure != 0 {
		t.Errorf("nothing is measured: %+v", r)
	}
}
