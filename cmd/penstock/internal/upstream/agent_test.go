package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

func TestParseAgent(t *testing.T) {
	for _, c := range []struct{ line, says, err string }{
		{"", "", ""},
		{"up", "up", ""},
		{"UP Ready 75%", "ready 75% up", ""},
		{"75%,up\tready", "ready 75% up", ""},
		{", ,\t75%", "75%", ""},
		{"down # disk full", "down # disk full", ""},
		{"fail#x,y 50%", "fail # x,y 50%", ""},
		{"stopped #", "stopped", ""},
		{"drain # why", "drain", ""}, // a reason is one of the health
		{"maint 0% maxconn:30", "maint 0% maxconn:30", ""},
		{"MAXCONN:0", "maxconn:0", ""},
		{"up down", "down", ""},
		{"drain ready", "ready", ""},
		{"99999999999999999999%", "25600%", ""},
		{"maxconn:99999999999999999999", "maxconn:1073741824", ""},
		{"down # a\x1b[31m\x00b\xff", "down # a [31m b", ""},
		{"down # " + strings.Repeat("x", 300), "down # " + strings.Repeat("x", maxAgentReason), ""},
		{"up upp 5 % -5% 5.5% maxconn: maxconn:-1 maxconn:5x 10%", "10% up", `"upp"`},
		{"HTTP/1.1 200 OK", "", `"HTTP/1.1"`},
	} {
		says, err := parseAgent(c.line)
		if says.String() != c.says || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v; want %q, %s", c.line, says, err, c.says, c.err)
		}
	}
}

// What an agent has said is read again by the next process from what String returns.
func FuzzAgent(f *testing.F) {
	for _, line := range []string{"up 75% ready", "down # disk full", "maint,0%\tmaxconn:30", "fail#", "x # y", "up #\xff\r"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		says, _ := parseAgent(line)
		text := says.String()
		again, err := parseAgent(text)
		if err != nil || again != says {
			t.Errorf("%q is %+v, and again %+v, %v", text, says, again, err)
		}
		if weight := says.of(256); weight < 1 || weight > 256 || says.limit < 0 || len(says.reason) > maxAgentReason || strings.ContainsAny(text, "\r\n") {
			t.Errorf("%q: %+v", line, says)
		}
		var merged agentSays
		if merged.merge(says); merged != says {
			t.Errorf("%+v becomes %+v", says, merged)
		}
	})
}

// agents are those of a group's members, by address. They say nothing until they are told to.
type agents struct {
	mu    sync.Mutex
	lines map[netip.Addr]string
	asked map[netip.Addr]int
}

func (a *agents) ask(_ context.Context, _ *spec.Group, to netip.AddrPort, _ []byte) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == nil {
		a.asked = map[netip.Addr]int{}
	}
	a.asked[to.Addr()]++
	line, ok := a.lines[to.Addr()]
	if !ok {
		return "", errors.New("refused")
	}
	return line, nil
}

// times returns how often an agent was asked.
func (a *agents) times(member int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[netip.AddrFrom4([4]byte{10, 0, 0, byte(member)})]
}

// set has an agent say a line from now on; an empty line ends it.
func (a *agents) set(member int, line string) {
	at := netip.AddrFrom4([4]byte{10, 0, 0, byte(member)})
	a.mu.Lock()
	if a.lines == nil {
		a.lines = map[netip.Addr]string{}
	}
	if a.lines[at] = line; line == "" {
		delete(a.lines, at)
	}
	a.mu.Unlock()
}

// whyEvents gathers events with their reasons.
func whyEvents(l *log) func(MemberEvent) {
	return func(e MemberEvent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, fmt.Sprintf("%s %v>%v: %s", e.Member, e.From, e.To, e.Why))
	}
}

var askEvery2s = &spec.Agent{Port: 9, Every: 2 * time.Second, Timeout: time.Second}

// weightsOf returns the state, weight and limit of each member.
func weightsOf(s *Set) string {
	var list []string
	for _, m := range s.Snapshot()[0].Members {
		list = append(list, fmt.Sprintf("%v %d/%d", m.State, m.Weight, m.MaxFlows))
	}
	return strings.Join(list, ", ")
}

func TestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agents
		say := func(member int, line string) {
			a.set(member, line)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		var l log
		cfg := &spec.Group{Balance: "round-robin", Members: members(2, 100, 100), Agent: askEvery2s}
		cfg.Members[0].MaxFlows = 40
		s, g := set(t, cfg, Options{ask: a.ask, MemberChanged: whyEvents(&l)})
		defer s.Close()
		synctest.Wait()
		l.take()
		for _, c := range []struct{ line, want, event string }{
			{"", "up 100/40, up 100/0", ""},
			{"75%", "up 75/40, up 100/0", ""},
			{"50% maxconn:7", "up 50/7, up 100/0", ""},
			{"up", "up 50/7, up 100/0", ""},
			{"", "up 50/7, up 100/0", ""}, // what it has said holds
			{"nonsense maxconn:8", "up 50/8, up 100/0", ""},
			{"down # disk full", "down 50/8, up 100/0", "m0 up>down: its agent says 50% maxconn:8 down # disk full"},
			{"", "down 50/8, up 100/0", ""},
			{"100% ready", "down 100/8, up 100/0", ""}, // up is another word
			{"UP", "up 100/8, up 100/0", "m0 down>up: its agent says ready 100% maxconn:8 up"},
			{"fail", "down 100/8, up 100/0", "m0 up>down: its agent says ready 100% maxconn:8 fail"},
			{"drain up", "drained 100/8, up 100/0", "m0 down>drained: its agent says drain 100% maxconn:8 up"},
			{"maint", "disabled 100/8, up 100/0", "m0 drained>disabled: its agent says maint 100% maxconn:8 up"},
			{"ready", "up 100/8, up 100/0", "m0 disabled>up: its agent says ready 100% maxconn:8 up"},
			{"0%", "drained 1/8, up 100/0", "m0 up>drained: its agent says ready 0% maxconn:8 up"},
			{"200%", "up 200/8, up 100/0", "m0 drained>up: its agent says ready 200% maxconn:8 up"},
			{"1000%", "up 256/8, up 100/0", ""},
			{"stopped maxconn:0", "down 256/0, up 100/0", "m0 up>down: its agent says ready 1000% maxconn:0 stopped"},
		} {
			say(0, c.line)
			if now := weightsOf(s); now != c.want {
				t.Fatalf("%q: %s, want %s", c.line, now, c.want)
			}
			if events := strings.Join(l.take(), "; "); events != c.event {
				t.Fatalf("%q: events %q, want %q", c.line, events, c.event)
			}
		}
		snap := s.Snapshot()[0].Members
		if snap[0].AgentSays != "ready 1000% maxconn:0 stopped" || snap[0].AgentErr != "" || snap[0].AgentAt.IsZero() || snap[1].AgentErr != "refused" || !snap[1].AgentAt.IsZero() {
			t.Errorf("%+v", snap)
		}
		if flows := pick(t, g, 4, false, nil); !slices.Equal(flows, []int{0, 4}) {
			t.Errorf("flows %v", flows)
		}
		say(0, "up 25% oops")
		if e := s.Snapshot()[0].Members[0].AgentErr; !strings.Contains(e, `"oops"`) {
			t.Errorf("error %q", e)
		}
		if flows := pick(t, g, 125, false, nil); !slices.Equal(flows, []int{25, 100}) {
			t.Errorf("flows %v", flows)
		}
		revision := s.Revision()
		say(0, "50%")
		if flows := pick(t, g, 150, false, nil); !slices.Equal(flows, []int{50, 100}) || s.Revision() == revision {
			t.Errorf("flows %v, revision %d, was %d", flows, s.Revision(), revision)
		}
		// Without the key, nothing that it has said holds.
		without := *cfg
		without.Agent = nil
		s.Apply([]*spec.Group{&without})
		if now := weightsOf(s); now != "up 100/40, up 100/0" {
			t.Error(now)
		}
		asked := a.times(0)
		say(0, "down")
		if a.times(0) != asked {
			t.Error("it is still asked")
		}
	})
}

// The agent and the check both count; an agent whose member is in maintenance has its check stopped.
func TestAgentAndCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agents
		say := func(member int, line string) {
			a.set(member, line)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		var checks atomic.Int64
		var fails atomic.Bool
		cfg := &spec.Group{Balance: "round-robin", Members: members(1), Agent: askEvery2s,
			Check: &spec.Check{Kind: "tcp", Every: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}}
		s, _ := set(t, cfg, Options{ask: a.ask, probe: func(context.Context, *spec.Group, relay.Addr) error {
			checks.Add(1)
			if fails.Load() {
				return errors.New("hangs")
			}
			return nil
		}})
		defer s.Close()
		is := func(line, want string) {
			t.Helper()
			if say(0, line); weightsOf(s) != want {
				t.Fatalf("%q: %s, want %s", line, weightsOf(s), want)
			}
		}
		is("up", "up 1/0")
		fails.Store(true)
		is("up", "down 1/0")
		is("down", "down 1/0")
		fails.Store(false)
		is("down", "down 1/0")
		is("up", "up 1/0")
		is("maint", "disabled 1/0")
		was := checks.Load()
		is("maint", "disabled 1/0")
		if now := checks.Load(); now != was {
			t.Errorf("%d checks in maintenance", now-was)
		}
		is("ready", "up 1/0")
		if checks.Load() == was {
			t.Error("no check after maintenance")
		}
	})
}

// What operators decide counts, and not the agent, until they take it back; a member that the file or a registry drains stays so,
// whatever its agent says.
func TestAgentAndOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agents
		say := func(member int, line string) {
			a.set(member, line)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		cfg := &spec.Group{Balance: "round-robin", Members: members(2, 100, 100), Agent: askEvery2s}
		cfg.Members[1].Drained = true
		s, _ := set(t, cfg, Options{ask: a.ask})
		defer s.Close()
		is := func(want string) {
			t.Helper()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if now := weightsOf(s); now != want {
				t.Fatalf("%s, want %s", now, want)
			}
		}
		say(0, "50% ready")
		say(1, "50% ready")
		is("up 50/0, drained 50/0")
		s.SetWeight("g", "m0", 30)
		s.SetMode("g", "m1", Enable)
		is("up 30/0, up 50/0")
		say(0, "0%")
		say(1, "maint")
		is("up 30/0, up 50/0")
		s.SetWeight("g", "m0", 0)
		s.SetMode("g", "m1", AsFile)
		is("drained 1/0, disabled 50/0")
		say(0, "100% drain")
		s.SetMode("g", "m0", Disable)
		was := a.times(0)
		say(0, "100% ready")
		is("disabled 100/0, disabled 50/0")
		if n := a.times(0); n != was {
			t.Error("the agent of a member that is disabled was asked")
		}
		s.SetMode("g", "m0", AsFile)
		is("up 100/0, disabled 50/0")
		if d := s.Snapshot()[0].Differences; len(d) != 0 {
			t.Errorf("differences %+v", d)
		}
	})
}

// A flow that is queued goes on when the agent allows more.
func TestAgentAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agents
		say := func(member int, line string) {
			a.set(member, line)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		cfg := &spec.Group{Balance: "round-robin", Members: members(1), Agent: askEvery2s, Queue: spec.Queue{Size: 5, Timeout: time.Hour}}
		s, g := set(t, cfg, Options{ask: a.ask})
		defer s.Close()
		say(0, "maxconn:1")
		var first, second Lease
		if m, _ := g.Pick(&first, Client{}); m == nil {
			t.Fatal("no member")
		}
		if m, _ := g.Pick(&second, Client{}); m != nil {
			t.Fatal("more than one flow")
		}
		var r flow
		if m, why := g.Wait(&second, &r); m != nil || why != spec.ReasonNone {
			t.Fatal(m, why)
		}
		say(0, "maxconn:2")
		if r.resumed != 1 {
			t.Fatal("the queued flow was not resumed")
		}
		first.Release()
		second.Release()
	})
}

// What agents have said holds in the next process before they are asked again.
func TestSavedAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agents
		say := func(member int, line string) {
			a.set(member, line)
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		cfg := func() *spec.Group {
			return &spec.Group{Name: "g", Balance: "round-robin", Members: members(4, 100, 100, 100, 100), Agent: askEvery2s}
		}
		s, _ := set(t, cfg(), Options{ask: a.ask})
		revision := s.Revision()
		for i, line := range []string{"40% maxconn:3", "down # disk full", "maint", "0%"} {
			say(i, line)
		}
		want := "up 40/3, down 100/0, disabled 100/0, drained 1/0"
		if now := weightsOf(s); now != want || s.Revision() == revision {
			t.Fatalf("%s, want %s", now, want)
		}
		saved := throughJSON(t, s.Save())
		s.Close()
		var l log
		next := NewSet(Options{ask: a.ask, Saved: saved, MemberChanged: whyEvents(&l)})
		next.Apply([]*spec.Group{cfg()})
		if now := weightsOf(next); now != want {
			t.Errorf("%s, want %s", now, want)
		}
		synctest.Wait()
		if got := l.take(); len(got) > 0 {
			t.Errorf("events %q", got)
		}
		if why := next.Snapshot()[0].Members[1].Why; why != "its agent says down # disk full" {
			t.Errorf("why %q", why)
		}
		next.Close()
		// A configuration without the key.
		next = NewSet(Options{ask: a.ask, Saved: saved})
		defer next.Close()
		without := cfg()
		without.Agent = nil
		next.Apply([]*spec.Group{without})
		if now := weightsOf(next); now != "up 100/0, up 100/0, up 100/0, up 100/0" {
			t.Error(now)
		}
	})
}

// The prober asks over TCP, whatever the agent does with the bytes.
func TestAskAgent(t *testing.T) {
	long := strings.Repeat("x", maxAgentLine+1)
	for _, c := range []struct {
		name  string
		agent func(net.Conn)
		line  string
		err   string
	}{
		{"a line", func(c net.Conn) { io.WriteString(c, "up 75%\r\n") }, "up 75%", ""},
		{"what was sent", func(c net.Conn) {
			b := make([]byte, 6)
			io.ReadFull(c, b)
			c.Write(b)
		}, "m1 ok", ""},
		{"byte by byte", func(c net.Conn) {
			for _, b := range []byte("down # x\n") {
				c.Write([]byte{b})
			}
		}, "down # x", ""},
		{"an empty line", func(c net.Conn) { io.WriteString(c, "\ndown\n") }, "", ""},
		{"more than a line", func(c net.Conn) { io.WriteString(c, "up\ndown\n"+long) }, "up", ""},
		{"no end", func(c net.Conn) { io.WriteString(c, "down") }, "", "does not end as a line"},
		{"no answer", func(c net.Conn) {}, "", "no answer of the agent"},
		{"a long line", func(c net.Conn) { io.WriteString(c, long+"\n") }, "", "more than 4096 bytes"},
		{"a reset", func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }, "", ""},
		{"endless", func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, long); err != nil {
					return
				}
			}
		}, "", "more than 4096 bytes"},
		{"silent", nil, "", "no answer of the agent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if c.agent == nil {
					io.Copy(io.Discard, conn)
					return
				}
				c.agent(conn)
				if c.name == "a reset" {
					return
				}
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
			})
			defer wg.Wait()
			defer l.Close()
			timeout := longEnough
			if c.agent == nil {
				timeout = 20 * time.Millisecond // the end of which is what is tested
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			line, err := (&prober{}).ask(ctx, &spec.Group{}, netip.MustParseAddrPort(l.Addr().String()), []byte("m1 ok\n"))
			switch {
			case c.name == "a reset":
				if err == nil {
					t.Errorf("line %q", line)
				}
			case line != c.line || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err):
				t.Errorf("%q, %v; want %q, %q", line, err, c.line, c.err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	port := testnet.Port(t)
	if _, err := (&prober{}).ask(ctx, &spec.Group{}, netip.MustParseAddrPort(loopback+":"+port), nil); err == nil {
		t.Error("nobody listens, and no error")
	}
}

// A member's own keys say where its agent is, and what it is sent.
func TestAgentAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &spec.Group{Balance: "round-robin", Members: members(3), Agent: &spec.Agent{Port: 9, Every: 2 * time.Second, Timeout: time.Second, Send: []byte("all")}}
		cfg.Members[1].AgentPort, cfg.Members[1].AgentSend = 10, "m1"
		cfg.Members[2].AgentAddress = netip.MustParseAddr("10.9.9.9")
		var mu sync.Mutex
		got := map[string]bool{}
		s, _ := set(t, cfg, Options{ask: func(_ context.Context, _ *spec.Group, to netip.AddrPort, send []byte) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%s %s", to, send)] = true
			return "up", nil
		}})
		defer s.Close()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mu.Lock()
		if want := map[string]bool{"10.0.0.0:9 all": true, "10.0.0.1:10 m1": true, "10.9.9.9:9 all": true}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		clear(got)
		mu.Unlock()
		// A reload that changes it counts at once.
		next := *cfg
		next.Members = slices.Clone(cfg.Members)
		next.Members[1].AgentPort = 11
		s.Apply([]*spec.Group{&next})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !got["10.0.0.1:11 m1"] || !got["10.0.0.0:9 all"] || len(got) != 3 {
			t.Errorf("%v", got)
		}
	})
}

// Members that are discovered, or that operators add, are checked and asked at the ports that the group says.
func TestPortsOfMembersThatCome(t *testing.T) {
	checked, asked := listen(t, "tcp"), listen(t, "tcp")
	at := addrOf(checked.Addr()).AddrPort
	serve(t, checked, func(net.Conn) {})
	serve(t, asked, func(c net.Conn) { io.WriteString(c, "up 50%\n") })
	found := Target{Name: "found", Weight: 100, Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.AddrPortFrom(at.Addr(), 1)}}
	cfg := &spec.Group{Balance: "round-robin", Discover: []spec.Discover{{Network: spec.TCP, Host: "name", Port: 1}},
		Check: &spec.Check{Kind: "tcp", Every: time.Minute, Timeout: longEnough, Rise: 1, Fall: 1, Port: at.Port()},
		Agent: &spec.Agent{Port: addrOf(asked.Addr()).AddrPort.Port(), Every: time.Minute, Timeout: longEnough}}
	s, _ := set(t, cfg, Options{Discoverer: func(spec.Discover) Discoverer { return fixed{found} }})
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.AddMember("g", spec.Member{Name: "added", Weight: 10, To: spec.Endpoint{Kind: spec.TCP, Host: at.Addr().String(), Port: 2}}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "both are up, by their checks, and weigh what their agents say", func() bool {
		for _, m := range s.Snapshot()[0].Members {
			if m.State != Up || m.Checked.IsZero() || m.CheckErr != "" || m.Weight != map[string]int{"found": 50, "added": 5}[m.Name] {
				return false
			}
		}
		return len(s.Snapshot()[0].Members) == 2
	})
}

// Flows of a member end when its agent says that it is down, and the agent of one that is removed is not asked any more.
func TestAgentEndsFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agents
		cfg := &spec.Group{Balance: "first", Members: members(3), Agent: askEvery2s, Down: spec.LiveFlows{What: "close"}}
		s, g := set(t, cfg, Options{ask: a.ask})
		defer s.Close()
		a.set(0, "down")
		a.set(1, "up")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if end, _ := g.members[0].End(); end == nil || end.Reason != spec.ReasonCheckFailed {
			t.Errorf("end %+v", end)
		}
		if end, _ := g.members[1].End(); end != nil {
			t.Errorf("end %+v", end)
		}
		s.RemoveMember("g", "m1")
		was := a.times(1)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := a.times(1); n != was || was == 0 {
			t.Errorf("the agent of a member that is gone was asked %d times", n-was)
		}
	})
}

// Agents that hang take no room from the checks: who fails is found as soon as without them.
func TestAgentsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4 * maxProbes
		check := &spec.Check{Kind: "tcp", Every: 2 * time.Second, Timeout: time.Second, Rise: 1, Fall: 2}
		var failing atomic.Bool
		hang := func(ctx context.Context, _ *spec.Group, _ netip.AddrPort, _ []byte) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		probe := func(_ context.Context, _ *spec.Group, to relay.Addr) error {
			if failing.Load() && to.AddrPort.Addr() == netip.AddrFrom4([4]byte{10, 0, 0, 0}) {
				return errors.New("refused")
			}
			return nil
		}
		cfg := &spec.Group{Balance: "round-robin", Members: members(n), Check: check, Agent: &spec.Agent{Port: 9, Every: 10 * time.Second, Timeout: 10 * time.Second}}
		s, _ := set(t, cfg, Options{ask: hang, probe: probe})
		defer s.Close()
		time.Sleep(time.Minute)
		failing.Store(true)
		time.Sleep(time.Duration(check.Fall+1) * check.Every)
		synctest.Wait()
		if state := s.Snapshot()[0].Members[0].State; state != Down {
			t.Errorf("a member that fails is %v", state)
		}
	})
}
