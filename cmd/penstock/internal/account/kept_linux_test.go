package account

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
)

// countingChild makes a process of this test count flows until it is killed.
const countingChild = "PENSTOCK_TEST_COUNTING_CHILD"

// countForever is the child: two loops count flows that begin, move and end, in the memory of
// descriptor 3, and say so by a byte for each on descriptors 4 and 5.
func countForever() {
	m, err := keeper.OpenMemory(3)
	if err != nil {
		panic(err)
	}
	c, err := openCounters(m.Words())
	if err != nil {
		panic(err)
	}
	for loop := range 2 {
		pipe := os.NewFile(uintptr(4+loop), "pipe")
		go func() {
			e := entry()
			l := "l" + strconv.Itoa(loop)
			for i := 0; ; i++ {
				s := c.Series(Key{Listener: l})
				s.Begin()
				to := c.Series(Key{l, "r", "g", strconv.Itoa(i % 50)})
				s.Move(to, Volume{}, Volume{})
				to.Attempt(nil)
				to.End(e)
				if i%200 == 199 {
					c.Forget(func(k Key) bool { return k.Listener == l && i%400 == 199 })
				}
				if _, err := pipe.Write([]byte{1}); err != nil {
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}

func openCounters(mem []atomic.Int64) (*Counters, error) {
	m, err := counts.Open(mem)
	if err == counts.ErrNew {
		m, err = counts.Create(mem, Layout())
	}
	if err != nil {
		return nil, err
	}
	return OpenCounters(m.Table(Layout().Name)), nil
}

// A process that counts is killed, again and again: nothing that it said to have counted is missing,
// and after each death begun = ended + open.
func TestKilledWhileCounting(t *testing.T) {
	m, err := keeper.NewMemory("counters", 8*counts.Size(Layout()))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var told [2]int64
	rounds := int64(12)
	if testing.Short() {
		rounds = 3
	}
	for round := int64(1); round <= rounds; round++ {
		n := killWhileCounting(t, m)
		for i := range n {
			told[i] += n[i]
		}
		c, err := openCounters(m.Words())
		if err != nil {
			t.Fatal(err)
		}
		if crashed := c.Settle(nil); crashed > 2 {
			t.Errorf("%d flows were open", crashed)
		}
		var begun, bytes [2]int64
		for _, p := range c.Snapshot(nil, nil) {
			i := p.Listener[1] - '0'
			begun[i] += p.Begun
			bytes[i] += p.Up.Bytes
			if p.Open() != 0 || p.Begun+p.MovedIn != p.Ended[relay.CauseUpstreamReset]+p.Ended[relay.CauseCrashed] {
				t.Errorf("%+v: %d begun, %d moved here, %d ended, %d crashed", p.Key, p.Begun, p.MovedIn, p.Ended[relay.CauseUpstreamReset], p.Ended[relay.CauseCrashed])
			}
		}
		for i := range begun { // in each round, one flow more may have been counted than told
			if begun[i] < told[i] || begun[i] > told[i]+round || bytes[i] < 10*told[i] || bytes[i] > 10*(told[i]+round) {
				t.Errorf("round %d, loop %d: %d begun, %d bytes; the child told of %d", round, i, begun[i], bytes[i], told[i])
			}
		}
	}
	if told[0] == 0 || told[1] == 0 {
		t.Error("nothing was counted")
	}
}

// killWhileCounting lets a process count for a moment, kills it, and returns what it told.
func killWhileCounting(t *testing.T, m *keeper.Memory) (told [2]int64) {
	memory, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(m.FD()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), countingChild+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{memory}
	var pipes [2]*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		pipes[i], cmd.ExtraFiles = r, append(cmd.ExtraFiles, w)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, w := range cmd.ExtraFiles[1:] {
		w.Close()
	}
	var all atomic.Int64
	killed := rand.Int64N(20_000) // told before it is killed, while it goes on
	var readers sync.WaitGroup
	for i, r := range pipes { // so that the child never waits for long
		readers.Go(func() {
			for b := make([]byte, 512); ; {
				n, err := r.Read(b)
				if told[i] += int64(n); all.Add(int64(n)) >= killed {
					cmd.Process.Kill()
				}
				if err != nil {
					return
				}
			}
		})
	}
	readers.Wait()
	cmd.Wait()
	return told
}

// A version before has copied the counts of another layout, and gone on in other rows of the same keys, where it has counted the flows that were open
// as begun once more. None of these was lost.
func TestCopiedAndCountedAgain(t *testing.T) {
	k := Key{Listener: "l"}
	layouts := []counts.Layout{Layout(), {Name: "other", Words: []string{"w"}, Key: 8, Rows: 1}}
	mem := make([]atomic.Int64, counts.Size(Layout()))
	m, err := counts.Create(mem, Layout())
	if err != nil {
		t.Fatal(err)
	}
	row := func(begun, ended int64) {
		w := m.Table(Layout().Name).New(k.encode()).Words()
		w[begunAt].Store(begun)
		w[endedAt+int(relay.CauseEnd)].Store(ended)
	}
	row(10, 4)  // what it has copied: 6 are open
	row(6+3, 2) // what it has counted: these 6, and 3 new ones, of which 2 have ended
	if m, err = counts.Open(mem); err != nil {
		t.Fatal(err)
	}
	next, err := counts.Create(make([]atomic.Int64, counts.Size(layouts...)), layouts...)
	if err != nil {
		t.Fatal(err)
	}
	m.CopyTo(next)
	c := OpenCounters(next.Table(Layout().Name))
	for range 7 {
		c.Series(k).Continue()
	}
	if n := c.Settle(nil); n != 0 {
		t.Errorf("%d flows are lost", n)
	}
	if p := c.Snapshot(nil, nil)[0]; p.Begun != 13 || p.Open() != 7 || p.Ended[relay.CauseCrashed] != 0 {
		t.Errorf("%d begun, %d open, %d crashed", p.Begun, p.Open(), p.Ended[relay.CauseCrashed])
	}
}
