package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// An order to report more often that ends while it is being carried out is over.
func TestOrderEndsMeanwhile(t *testing.T) {
	p := NewPresence(PresenceConfig{Interval: time.Hour})
	c := &carrier{p: p, mine: map[string]etcd.LeaseID{"b": 0}}
	c.reportEvery("a", time.Second)
	if d := p.interval(); d != time.Hour {
		t.Errorf("every %v for an order that has ended", d)
	}
	c.reportEvery("b", time.Second)
	if d := p.interval(); d != time.Second {
		t.Errorf("every %v", d)
	}
	c.end("b")
	if d := p.interval(); d != time.Hour {
		t.Errorf("every %v after the end", d)
	}
}

// However long the names are, a report can be read, and says how many members are up.
func TestReportFits(t *testing.T) {
	long := strings.Repeat("<", maxText)
	r := Report{Node: "one", State: "ready", Groups: map[string]Group{}}
	for i := range maxGroups {
		r.Groups[fmt.Sprint("group", i)] = Group{Up: 1, All: 6, Down: []string{long, long, long, long, long}}
	}
	for i := range maxSources {
		r.Sources = append(r.Sources, Source{Name: fmt.Sprint(i, long), Error: long})
	}
	r.Bound()
	got, err := ParseReport(r.text())
	if err != nil || len(got.Groups) != maxGroups || got.Groups["group7"].All != 6 {
		t.Errorf("%d groups, %v", len(got.Groups), err)
	}
	if len(r.Groups["group7"].Down) != maxDown || len(r.Sources) != maxSources {
		t.Error("the report itself was changed")
	}
	for i := range 50 {
		r.Groups[fmt.Sprint("whole", i)] = Group{Up: 2, All: 2}
	}
	r.Groups["zero"] = Group{} // is not one of those that are well
	delete(r.Groups, "group0")
	up, all := r.Members()
	r.Bound()
	if got, err = ParseReport(r.text()); err != nil || len(got.Groups) != maxGroups || got.OtherGroups.All != 100 {
		t.Errorf("%d groups, others %+v, %v", len(got.Groups), got.OtherGroups, err)
	}
	if _, ok := got.Groups["zero"]; !ok {
		t.Error("a group without members is left out")
	}
	if n, of := got.Members(); n != up || of != all {
		t.Errorf("%d of %d members are up, want %d of %d", n, of, up, all)
	}
	r = Report{Node: "one", Groups: map[string]Group{"web": {All: 1, Down: []string{"a"}}}, Sources: []Source{{Name: "x"}}}
	if got, err := ParseReport(r.text()); err != nil || len(got.Groups["web"].Down) != 1 || len(got.Sources) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// However many listeners there are, a report has a few of them, the same ones in each, and says how many it leaves out.
func TestReportOfManyListeners(t *testing.T) {
	r := Report{Node: "one", State: "ready", Served: &Served{}, Listeners: map[string]Listener{}}
	for i := range maxListeners + 30 {
		l := Served{Begun: 123456, Ends: map[string]int64{"end": 120000, "client-reset": 1234, "idle": 1000, "no-upstream": 99, "refused": 1000}, ConnectFailures: 12, BytesDown: 12345678901, Sizes: []int64{12, 345, 6789, 12345, 6789, 123, 45, 6}, FirstByte: []int64{123456, 78, 9, 1}}
		r.Listeners[fmt.Sprintf("listener-%02d", i)] = Listener{l, Socket{Listen: fmt.Sprintf("tcp://192.0.2.1:%d", 30000+i)}}
		r.Served.add(&l)
	}
	r.Bound()
	text := r.text()
	got, err := ParseReport(text)
	if err != nil || len(got.Listeners) != maxListeners || got.Unlisted != 30 || got.Listeners["listener-07"].Begun != 123456 || got.Served.Ended() != 50*123333 || got.Served.Begun != 50*123456 {
		t.Errorf("%d listeners, %d besides, %v", len(got.Listeners), got.Unlisted, err)
	}
	t.Logf("%d bytes", len(text))
	if len(text) > 8<<10 {
		t.Errorf("a report of %d bytes, each second", len(text))
	}
	for name, text := range map[string]string{
		"below 0":     `{"node":"a","listeners":{"x":{"begun":1,"ends":{"end":-1}}}}`,
		"sizes":       `{"node":"a","served":{"begun":1,"sizes":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}`,
		"many causes": `{"node":"a","served":{"begun":1,"ends":{"end":1` + manyCauses() + `}}}`,
	} {
		if _, err := ParseReport([]byte(text)); err == nil {
			t.Errorf("%s: read", name)
		}
	}
}

// manyCauses returns more causes than a report may have.
func manyCauses() string {
	var b strings.Builder
	for i := range maxEnds {
		fmt.Fprintf(&b, `,"cause-%d":1`, i)
	}
	return b.String()
}

// A canary that has ended since the state was read is a conflict, although the current version is the same: who
// publishes has seen something else.
func TestCanaryEndsBeforePublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("first")
		r := Report{Node: "one", Version: 1, State: "ready", At: time.Now()}
		if _, err := w.client.Put(t.Context(), nodeKey(testKey, r.Node), encode(&r), 0); err != nil {
			t.Fatal(err)
		}
		o := w.operator()
		s, err := o.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		trial, err := o.Try(t.Context(), s, Draft{Text: "second"}, patiently(0.5))
		if err != nil {
			t.Fatal(err)
		}
		if s, err = o.State(t.Context()); err != nil || s.Canary == nil {
			t.Fatalf("%+v, %v", s, err)
		}
		if err := trial.TakeBack(t.Context(), "why"); err != nil {
			t.Fatal(err)
		}
		var conflict *ConflictError
		if _, err := o.Publish(t.Context(), s, Draft{Text: "third", EndCanary: true}, "publish"); !errors.As(err, &conflict) {
			t.Errorf("published: %v", err)
		}
	})
}

// One relay of three that check a member, and lies, decides nothing; nor does one that is the first to say something.
func TestMajorityOfChecks(t *testing.T) {
	for _, tt := range []struct {
		up    []bool // what those who are ranked first found
		known bool
		want  bool
	}{
		{[]bool{false}, false, false},
		{[]bool{true, false}, true, true},
		{[]bool{false, false}, true, false},
		{[]bool{false, true, true}, true, true},
		{[]bool{false, true, false}, true, false},
		{[]bool{true, true, true, false, false, false}, true, true}, // those behind do not count
	} {
		c := NewChecks(ChecksConfig{Node: "self"})
		c.alone = false
		m, _ := c.Share(SharedCheck{Scope: "web", Member: "a", Checkers: 3, Patience: time.Hour, Update: func(Share) {}})
		var nodes []string
		for i := range 8 {
			name := fmt.Sprint("n", i)
			c.nodes[name] = map[string]bool{m.m.Scope: true}
			nodes = append(nodes, name)
		}
		c.rank()
		slices.SortFunc(nodes, func(a, b string) int {
			return -cmp.Compare(rankOf(hash64(a), m.m.hash), rankOf(hash64(b), m.m.hash))
		})
		c.results[m.m.id] = map[string]Result{}
		for i, up := range tt.up {
			c.results[m.m.id][nodes[i]] = Result{Up: up}
		}
		c.results[m.m.id]["stranger"] = Result{} // takes no part
		c.decide(m.m, time.Now())
		if s := m.m.share; s.Known != tt.known || s.Up != tt.want {
			t.Errorf("%v: %+v", tt.up, s)
		}
	}
}
