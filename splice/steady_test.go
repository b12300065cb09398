package splice

import (
	"io"
	"testing"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// TestAdapts: messages are copied, bulk is spliced, and after it messages are
// copied again.
func TestAdapts(t *testing.T) {
	eachLine(t, lines[:4], func(t *testing.T, r *rig) {
		pingPong := func() {
			for range 100 {
				r.write(t, 64)
				r.read(t, 64)
			}
			testwait.Until(t, "all is counted", func() bool { return r.live.Up().Written == r.sent })
		}
		r.start(t)
		pingPong()
		if got := r.live.Up(); got.Path != datapath.Copy || r.fast() && got.Why != datapath.WhySmall || got.Spliced != 0 {
			t.Errorf("%+v after messages", got)
		}
		r.bulk(t, 8<<20)
		testwait.Until(t, "all is counted", func() bool { return r.live.Up().Written == r.sent })
		bulk := r.live.Up()
		r.path(t, bulk)
		if r.fast() && bulk.Spliced < bulk.Written/2 {
			t.Errorf("%+v: more than half of the bulk was copied", bulk)
		}
		pingPong()
		// A streak of small reads ends the splicing; it is short.
		if got := r.live.Up(); got.Spliced > bulk.Spliced+20*64 {
			t.Errorf("%d bytes of messages were spliced", got.Spliced-bulk.Spliced)
		}
		if n := leased(); n != 0 {
			t.Errorf("%d pipes on lease while nothing moves", n)
		}
		endWriting(r.from)
		if n, err := r.wait(t); n != r.sent || err != nil {
			t.Errorf("Copy = %d, %v", n, err)
		}
	})
}

// TestSteadyStateAllocates nothing: neither by copy nor by splice.
func TestSteadyStateAllocates(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, size := range []int{64, 100_000} {
		eachLine(t, append(lines[:4:4], line{wrapped, unix}, line{hidden, tcp}), func(t *testing.T, r *rig) {
			r.start(t)
			buf := make([]byte, size)
			message := func() {
				if _, err := r.from.Write(buf); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(r.to, buf); err != nil {
					t.Error(err)
				}
			}
			for range 50 {
				message()
			}
			if allocs := testing.AllocsPerRun(300, message); allocs != 0 {
				t.Errorf("%v allocations a message of %d bytes", allocs, size)
			}
			got := r.live.Up()
			if want := size > 64 && r.fast(); want != (got.Spliced > 0) {
				t.Errorf("%+v for messages of %d bytes", got, size)
			}
		})
	}
}
