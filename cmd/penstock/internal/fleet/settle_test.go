package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// A slowServer stands before etcd. The next transaction that has some text in a key or value gets no answer, and is done
// when the test says so, as by a server that was stopped with the request in its socket.
type slowServer struct {
	*world
	client *etcd.Client

	mu     sync.Mutex
	text   string   // of the transaction to hold; empty: none
	lose   bool     // the transaction is done at once, but its answer is lost
	held   [][]byte // bodies
	next   string   // of the transaction after that whose answer is lost; empty: none
	failed int      // requests without an answer
	leases bool     // leases cannot be ended
}

func newSlowServer(t *testing.T) *slowServer {
	s := &slowServer{world: newWorld(t)}
	s.client = s.openAt(s.front(func(w http.ResponseWriter, r *http.Request, etcd http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.URL.Path == "/v3/kv/txn" && s.holds(body) || r.URL.Path == "/v3/lease/revoke" && s.keepsLeases() {
			panic(http.ErrAbortHandler)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		etcd.ServeHTTP(w, r)
	}))
	return s
}

// holds reports whether a transaction gets no answer.
func (s *slowServer) holds(body []byte) bool {
	s.mu.Lock()
	if s.text == "" || !strings.Contains(putsOf(body), s.text) {
		s.mu.Unlock()
		return false
	}
	s.text, s.next = s.next, ""
	s.failed++
	lose := s.lose
	if !lose {
		s.held = append(s.held, body)
	}
	s.lose = s.text != ""
	s.mu.Unlock() // in a bubble, no time passes for a request while somebody waits for a lock
	if lose {
		s.done(body)
	}
	return true
}

// keepsLeases reports whether a lease that somebody ends stays until it ends by itself.
func (s *slowServer) keepsLeases() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases
}

// putsOf returns the keys and values that a transaction writes if its conditions hold.
func putsOf(body []byte) string {
	var t struct {
		Success []struct {
			Put    *struct{ Key, Value []byte } `json:"request_put"`
			Delete *struct{ Key []byte }        `json:"request_delete_range"`
		}
	}
	if json.Unmarshal(body, &t) != nil {
		return ""
	}
	var b strings.Builder
	for _, op := range t.Success {
		if op.Put != nil {
			b.Write(op.Put.Key)
			b.WriteByte(' ')
			b.Write(op.Put.Value)
		}
		if op.Delete != nil {
			b.WriteString("delete ")
			b.Write(op.Delete.Key)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// hold holds the next transaction that writes some text, or with lose only loses its answer.
func (s *slowServer) hold(text string, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.lose = text, lose
}

// done has a transaction done, and reports whether its conditions held.
func (s *slowServer) done(body []byte) (succeeded bool) {
	c := &http.Client{Transport: s.transport()}
	res, err := c.Post(s.url+"/v3/kv/txn", "application/json", bytes.NewReader(body))
	if err != nil {
		s.Error(err)
		return false
	}
	defer res.Body.Close()
	var out struct{ Succeeded bool }
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		s.Error(err)
	}
	return out.Succeeded
}

// letGo has what was held done, and reports whether its conditions held. Something must have been held.
func (s *slowServer) letGo() (succeeded bool) {
	s.Helper()
	s.mu.Lock()
	if s.text != "" || s.failed == 0 {
		s.mu.Unlock()
		s.Fatalf("nothing that writes %q was held", s.text)
	}
	held := s.held
	s.held, s.failed = nil, 0
	s.mu.Unlock()
	for _, body := range held {
		succeeded = s.done(body) || succeeded
	}
	return succeeded
}

func (s *slowServer) operator() *Operator { return &Operator{s.client, testKey, "slow"} }

// Of a version it is said that nothing was published: then it is not published later either. If only the answer was lost,
// it is published, once.
func TestPublishWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		o := s.operator()
		for i, before := range []int64{0, 1} { // the first version, which has no key to compare, and the next one
			state, err := o.State(t.Context())
			if err != nil || state.Current.Version != 2*before {
				t.Fatalf("%+v, %v", state, err)
			}
			s.hold("held text", false)
			if _, err := o.Publish(t.Context(), state, Draft{Text: "held text"}, "publish"); err == nil || !strings.Contains(err.Error(), "nothing was published") {
				t.Errorf("without an answer: %v", err)
			}
			if s.letGo() {
				t.Error("it was published afterwards")
			}
			if now, err := o.State(t.Context()); err != nil || now.Current != state.Current {
				t.Errorf("%+v, %v", now, err)
			}
			s.hold("lost answer", true)
			v, err := o.Publish(t.Context(), state, Draft{Text: "lost answer"}, "publish")
			if err != nil || v.Version != 2*before+2 {
				t.Errorf("without its answer: %+v, %v", v, err)
			}
			s.letGo()
			if now, err := o.State(t.Context()); err != nil || now.Current.Version != v.Version || now.Current.Hash != v.Hash {
				t.Errorf("round %d: %+v, %v", i, now, err)
			}
		}
		list, _, err := o.History(t.Context(), 10)
		if err != nil || len(list) != 2 || list[0].Version != 4 || list[1].Version != 2 {
			t.Errorf("%d versions, %v", len(list), err)
		}
		if _, err := o.Version(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "version 3 was never published") {
			t.Errorf("the number without a text: %v", err)
		}
		if log, err := o.ReadLog(t.Context(), -1); err != nil || len(log) != 2 {
			t.Errorf("%+v, %v", log, err)
		}
	})
}

// A trial that was not begun does not begin later.
func TestTryWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.publish("one")
		relays := s.testers(2)
		o := s.operator()
		state, err := o.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.hold(canaryKey(testKey), false)
		if _, err := o.Try(t.Context(), state, Draft{Text: "two"}, patiently(1)); err == nil || !strings.Contains(err.Error(), "nothing was published") {
			t.Errorf("without an answer: %v", err)
		}
		if s.letGo() {
			t.Error("the trial began afterwards")
		}
		if v := s.publish("three"); v.Version != 3 {
			t.Errorf("version %d", v.Version)
		}
		s.all(relays, 3)
	})
}

// Of a good trial it is said that it is taken back: then it is not promoted later.
func TestPromoteWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.publish("one")
		relays := s.testers(2)
		for _, c := range []struct{ lose, roundTrip bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
			lose := c.lose
			o := s.operator()
			state, err := o.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tr, err := o.Try(t.Context(), state, Draft{Text: "two"}, patiently(0.5))
			if err != nil {
				t.Fatal(err)
			}
			s.hold("delete "+canaryKey(testKey), lose)
			s.mu.Lock()
			if c.roundTrip { // and the answer to the question what has become of it
				s.next = configKey(testKey)
			}
			s.leases = !lose // the end of the lease alone would keep it from being promoted
			s.mu.Unlock()
			err = tr.Promote(t.Context())
			if lose != (err == nil) || err != nil && !strings.Contains(err.Error(), "was not published, and is taken back") {
				t.Errorf("%+v: %v", c, err)
			}
			if s.letGo() {
				t.Error("it was promoted afterwards")
			}
			want := state.Current.Version
			if lose {
				want = tr.Version.Version
			}
			s.all(relays, want)
		}
	})
}

// A trial that an operator ends is ended, whatever becomes of the answer.
func TestEndCanaryWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		s.publish("one")
		relays := s.testers(2)
		for _, lose := range []bool{false, true} {
			tr := s.try("two", 1)
			s.all(relays, tr.Version.Version)
			s.hold("delete "+canaryKey(testKey), lose)
			if v, old, err := s.operator().Rollback(t.Context(), 0, "enough"); err != nil || v.Version != 1 || old.Version != tr.Version.Version {
				t.Errorf("lost %v: %+v, %+v, %v", lose, v, old, err)
			}
			if s.letGo() {
				t.Error("it was done twice")
			}
			s.all(relays, 1)
			tr.TakeBack(t.Context(), "it is over")
		}
	})
}

// An order to drain of which it was said that nothing was changed is not given later, not even when others have drained
// and undrained the relay meanwhile; one whose answer was lost is told as given, and is once in the log.
func TestDrainWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		o := s.operator()
		logged := 0
		for _, meanwhile := range []bool{false, true} {
			for _, on := range []bool{true, false} {
				s.hold(drainKey(testKey, "one"), false)
				if changed, err := o.SetDrain(t.Context(), []string{"one"}, on, "held", nil); err == nil || len(changed) != 0 || !strings.Contains(err.Error(), "nothing was changed") {
					t.Errorf("drain %v without an answer: %v, %v", on, changed, err)
				}
				for _, on := range []bool{on, !on} {
					if !meanwhile {
						break
					}
					if _, err := s.world.operator().SetDrain(t.Context(), []string{"one"}, on, "another", nil); err != nil {
						t.Fatal(err)
					}
					logged++
				}
				if s.letGo() {
					t.Errorf("drain %v was done afterwards", on)
				}
				s.hold(drainKey(testKey, "one"), true)
				if changed, err := o.SetDrain(t.Context(), []string{"one"}, on, "lost", nil); err != nil || len(changed) != 1 {
					t.Errorf("drain %v without its answer: %v, %v", on, changed, err)
				}
				s.letGo()
				logged++
				log, err := o.ReadLog(t.Context(), -1)
				if err != nil || len(log) != logged || log[0].Text != "lost" || log[0].To != "one" {
					t.Errorf("%+v, %v", log, err)
				}
			}
		}
		if changed, err := o.SetDrain(t.Context(), []string{"one"}, false, "", nil); err != nil || len(changed) != 0 {
			t.Errorf("not drained: %v, %v", changed, err)
		}
	})
}

// Of operators who drain at once, no more relays are drained than each allows.
func TestDrainsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const all, most = 8, 3
		errFull := errors.New("too many")
		errs := make(chan error, all)
		for i := range all {
			go func() {
				_, err := (&Operator{w.client, testKey, "me"}).SetDrain(t.Context(), []string{string(rune('a' + i))}, true, "", func(nodes []Node) error {
					if len(nodes) >= most {
						return errFull
					}
					return nil
				})
				errs <- err
			}()
		}
		full := 0
		for range all {
			if err := <-errs; errors.Is(err, errFull) {
				full++
			} else if err != nil {
				t.Error(err)
			}
		}
		if n := len(w.nodes()); n != most || full != all-most {
			t.Errorf("%d are drained, %d were told that it is enough", n, full)
		}
		var many []string // more than fit into one transaction
		for i := range 2*maxDrains + 5 {
			many = append(many, "many-"+string(rune('a'+i/26))+string(rune('a'+i%26)))
		}
		if changed, err := w.operator().SetDrain(t.Context(), many, true, "", nil); err != nil || len(changed) != len(many) || len(w.nodes()) != most+len(many) {
			t.Errorf("%d of %d, %v", len(changed), len(many), err)
		}
	})
}

// A report that got no answer is not written over a newer one.
func TestReportWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		var mu sync.Mutex
		version := int64(1)
		r := s.relay("one", func(c *PresenceConfig) {
			c.Client = s.client
			c.Report = func() Report {
				mu.Lock()
				defer mu.Unlock()
				return Report{State: "ready", Version: version}
			}
		})
		reports := func(n int64) func() bool {
			return func() bool { list := s.nodes(); return len(list) == 1 && list[0].Version == n }
		}
		s.until("it reports", reports(1))
		for i, lose := range []bool{false, true} {
			n := int64(2*i + 2)
			s.hold(`"version":`+string(rune('0'+n)), lose)
			mu.Lock()
			version = n
			mu.Unlock()
			r.Changed()
			s.until("that is held", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.failed > 0 })
			mu.Lock()
			version = n + 1
			mu.Unlock()
			r.Changed()
			s.until("a newer one is there", reports(n+1))
			if s.letGo() {
				t.Error("an older report was written over it")
			}
		}
	})
}

// A result of a check that got no answer, and is written later over a newer one, is corrected.
func TestResultWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowServer(t)
		r := s.checkerAt(s.client, "one", 1, "m")
		s.until("its checks are shared", func() bool { return r.is("m").Known })
		result := func(up bool) func() bool {
			return func() bool {
				kvs, _, err := s.world.client.Prefix(t.Context(), checksPrefix(testKey))
				if err != nil || len(kvs) != 1 {
					return false
				}
				found, err := ParseResult(kvs[0].Value)
				return err == nil && found.Up == up
			}
		}
		s.until("it is up", result(true))
		s.hold(`"up":false`, false)
		r.set("m", true)
		s.until("that is held", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.failed > 0 })
		s.until("it is down", result(false))
		r.set("m", false)
		s.until("it is up again", result(true))
		if !s.letGo() {
			t.Error("the late result was not written: this test tests nothing")
		}
		s.until("it is corrected", result(true))
	})
}
