package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

// zone is a name server with few records. Names are in lower case and end with
// a dot; what is unknown does not exist.
type zone struct {
	mu      sync.Mutex
	records map[string][]dnsmessage.Resource
	fail    bool // answers SERVFAIL
	short   bool // UDP answers are truncated
	overTCP int
	first   int // questions for addresses of IPv4, one in each lookup of a name
}

func (z *zone) answer(query []byte, tcp bool) []byte {
	z.mu.Lock()
	defer z.mu.Unlock()
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	if q.Type == dnsmessage.TypeA {
		z.first++
	}
	m.Response, m.Additionals = true, nil
	all, known := z.records[strings.ToLower(q.Name.String())]
	switch {
	case z.fail:
		m.RCode = dnsmessage.RCodeServerFailure
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case z.short && !tcp:
		m.Truncated = true
	default:
		for _, r := range all {
			if r.Header.Type == q.Type || r.Header.Type == dnsmessage.TypeCNAME {
				m.Answers = append(m.Answers, r)
			}
		}
	}
	if tcp {
		z.overTCP++
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// start serves the zone and returns a DNS that asks it.
func (z *zone) start(t *testing.T) DNS {
	t.Helper()
	p, l := listenBoth(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			p.WriteTo(z.answer(b[:n], false), from)
		}
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			z.overStream(c)
			c.Close()
		}
	})
	t.Cleanup(func() {
		p.Close()
		l.Close()
		wg.Wait()
	})
	return at(p.LocalAddr().String())
}

// inMemory returns a DNS that asks the zone by no network, for a bubble of testing/synctest.
func (z *zone) inMemory() DNS {
	return DNS{Dial: func(context.Context, string, string) (net.Conn, error) {
		c, server := net.Pipe() // no net.PacketConn, so that package net sends its questions as it does over TCP
		go func() {
			defer server.Close()
			z.overStream(server)
		}()
		return c, nil
	}}
}

// netResolver makes a lookup: the resolver of package net makes a channel, once, that must belong to no bubble.
func netResolver() { dnsWatch{at(""), spec.Discover{Host: "app.test."}}.lookup(context.Background()) }

// overStream answers one question.
func (z *zone) overStream(c io.ReadWriter) {
	var size [2]byte
	io.ReadFull(c, size[:])
	q := make([]byte, binary.BigEndian.Uint16(size[:]))
	io.ReadFull(c, q)
	a := z.answer(q, true)
	c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
}

// at is a DNS that asks one server.
func at(server string) DNS {
	return DNS{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
}

// listenBoth listens on one port of UDP and TCP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	at := loopback + ":" + testnet.Port(t)
	p, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return p, l
}

func record(name string, ttl uint32, body dnsmessage.ResourceBody) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: ttl}
	switch body.(type) {
	case *dnsmessage.AResource:
		h.Type = dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		h.Type = dnsmessage.TypeAAAA
	case *dnsmessage.SRVResource:
		h.Type = dnsmessage.TypeSRV
	case *dnsmessage.CNAMEResource:
		h.Type = dnsmessage.TypeCNAME
	}
	return dnsmessage.Resource{Header: h, Body: body}
}

func a(name string, ttl uint32, ip string) dnsmessage.Resource {
	if addr := netip.MustParseAddr(ip); addr.Is6() {
		return record(name, ttl, &dnsmessage.AAAAResource{AAAA: addr.As16()})
	} else {
		return record(name, ttl, &dnsmessage.AResource{A: addr.As4()})
	}
}

func srv(name string, priority, weight, port uint16, target string) dnsmessage.Resource {
	return record(name, 60, &dnsmessage.SRVResource{Priority: priority, Weight: weight, Port: port, Target: dnsmessage.MustNewName(target)})
}

func lookup(t *testing.T, d DNS, what spec.Discover) ([]string, time.Duration, error) {
	t.Helper()
	targets, ttl, err := dnsWatch{d, what}.lookup(t.Context())
	var got []string
	for _, x := range targets {
		s := fmt.Sprintf("%v w%d", x.Addr, x.Weight)
		if x.Backup {
			s += " backup"
		}
		got = append(got, s)
	}
	return got, ttl, err
}

func TestDNS(t *testing.T) {
	z := &zone{records: map[string][]dnsmessage.Resource{
		"app.test.": {a("app.test.", 70, "192.0.2.2"), a("app.test.", 50, "192.0.2.1"), a("app.test.", 30, "2001:db8::1")},
		"www.test.": {record("www.test.", 20, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("app.test.")}), a("app.test.", 70, "192.0.2.1")},
		"off.test.": {},
		"_db._tcp.test.": {
			srv("_db._tcp.test.", 10, 1024, 5432, "app.test."),
			srv("_db._tcp.test.", 10, 0, 5433, "gone.test."),
			srv("_db._tcp.test.", 20, 512, 5434, "four.test."),
			srv("_db._tcp.test.", 10, 1, 5435, "four.test."),
		},
		"_none._tcp.test.": {srv("_none._tcp.test.", 10, 1, 5435, "gone.test.")},
		"four.test.":       {a("four.test.", 90, "192.0.2.4")},
	}}
	d := z.start(t)
	app := spec.Discover{Network: spec.TCP, Host: "app.test.", Port: 80}
	three := []string{"tcp://192.0.2.1:80 w1", "tcp://192.0.2.2:80 w1", "tcp://[2001:db8::1]:80 w1"}
	for _, c := range []struct {
		what spec.Discover
		want []string
		ttl  time.Duration
	}{
		{app, three, 30 * time.Second},
		{spec.Discover{Network: spec.UDP, Host: "www.test.", Port: 53}, []string{"udp://192.0.2.1:53 w1"}, 20 * time.Second},
		{spec.Discover{Network: spec.TCP, Service: "_db._tcp.test."}, []string{
			"tcp://192.0.2.1:5432 w256", "tcp://192.0.2.2:5432 w256", "tcp://[2001:db8::1]:5432 w256",
			"tcp://192.0.2.4:5435 w1", "tcp://192.0.2.4:5434 w128 backup",
		}, 30 * time.Second},
	} {
		got, ttl, err := lookup(t, d, c.what)
		if err != nil || ttl != c.ttl || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q for %v, %v; want %q for %v", lookupName(c.what), got, ttl, err, c.want, c.ttl)
		}
	}
	for _, what := range []spec.Discover{
		{Network: spec.TCP, Host: "off.test.", Port: 1}, {Network: spec.TCP, Host: "gone.test.", Port: 1},
		{Network: spec.TCP, Service: "_gone._tcp.test."}, {Network: spec.TCP, Service: "_none._tcp.test."},
	} {
		if got, _, err := lookup(t, d, what); err == nil {
			t.Errorf("%s: %q", lookupName(what), got)
		}
	}

	z.mu.Lock()
	z.short = true
	z.mu.Unlock()
	if got, ttl, err := lookup(t, d, app); err != nil || ttl != 30*time.Second || !slices.Equal(got, three) {
		t.Errorf("over TCP: %q for %v, %v", got, ttl, err)
	}
	z.mu.Lock()
	if z.overTCP == 0 {
		t.Error("nobody came over TCP")
	}
	z.mu.Unlock()

	// /etc/hosts has no TTL.
	got, ttl, err := lookup(t, d, spec.Discover{Network: spec.TCP, Host: "localhost", Port: 1})
	if err != nil || ttl < 24*time.Hour || len(got) == 0 {
		t.Errorf("localhost: %q for %v, %v", got, ttl, err)
	}
}

// memberAddrs are the addresses of a group's members.
func memberAddrs(s *Set) (addrs []string) {
	for _, m := range s.Snapshot()[0].Members {
		addrs = append(addrs, m.Addr.String())
	}
	return addrs
}

// Members follow the zone; a server that fails takes nobody away.
func TestDiscovery(t *testing.T) {
	netResolver()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{records: map[string][]dnsmessage.Resource{
			"app.test.": {a("app.test.", 0, "192.0.2.1"), a("app.test.", 0, "192.0.2.2")},
			"one.test.": {a("one.test.", 0, "192.0.2.9")},
		}}
		cfg := &spec.Group{
			Balance:  "round-robin",
			Members:  []spec.Member{{Name: "named", Weight: 2, To: spec.Endpoint{Kind: spec.TCP, Host: "one.test.", Port: 7}}},
			Discover: []spec.Discover{{Network: spec.TCP, Host: "app.test.", Port: 80, Weight: 3, MaxFlows: 5}},
		}
		s, g := set(t, cfg, Options{Discoverer: z.inMemory().Discoverer})
		defer s.Close()
		if err := s.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []string{"tcp://192.0.2.9:7", "tcp://192.0.2.1:80", "tcp://192.0.2.2:80"}
		if got := memberAddrs(s); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
		snap := s.Snapshot()[0]
		if m := snap.Members[0]; m.Name != "named" || m.Weight != 2 || m.MaxFlows != 0 {
			t.Errorf("%+v", m)
		}
		if m := snap.Members[1]; m.Name != "tcp://192.0.2.1:80" || m.Weight != 3 || m.MaxFlows != 5 {
			t.Errorf("%+v", m)
		}
		kept := g.members[2]

		z.mu.Lock()
		z.records["app.test."] = []dnsmessage.Resource{a("app.test.", 0, "192.0.2.2"), a("app.test.", 0, "192.0.2.3")}
		z.mu.Unlock()
		want = []string{"tcp://192.0.2.9:7", "tcp://192.0.2.2:80", "tcp://192.0.2.3:80"}
		testwait.Until(t, "the new addresses", func() bool { return slices.Equal(memberAddrs(s), want) })
		s.mu.Lock()
		if g.members[1] != kept {
			t.Error("a member that stays is another one")
		}
		s.mu.Unlock()

		z.mu.Lock()
		z.fail = true
		z.mu.Unlock()
		testwait.Until(t, "the failure", func() bool { return s.Snapshot()[0].Lookups[1].Err != "" })
		if got := memberAddrs(s); !slices.Equal(got, want) {
			t.Errorf("after a failure: %q", got)
		}
	})
}

// A name is looked up again when its answer is too old, but neither more often than once a second nor less often than the configuration says, and up to
// an eighth of that later. While the server fails, it is asked less and less often.
func TestLookupPace(t *testing.T) {
	netResolver()
	for _, c := range []struct {
		ttl         uint32
		every       time.Duration
		fails       bool
		least, most int // lookups in 20 minutes
	}{
		{ttl: 0, least: 1066, most: 1201},
		{ttl: 10, least: 106, most: 121},
		{ttl: 3600, least: 35, most: 41},
		{ttl: 3600, every: 5 * time.Minute, least: 4, most: 5},
		{ttl: 0, fails: true, least: 39, most: 46}, // after 1, 2, 4, 8, 16 s, and then each 30 s
	} {
		synctest.Test(t, func(t *testing.T) {
			z := &zone{records: map[string][]dnsmessage.Resource{"app.test.": {a("app.test.", c.ttl, "192.0.2.1")}}, fail: c.fails}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			failures := 0
			z.inMemory().Discoverer(spec.Discover{Network: spec.TCP, Host: "app.test.", Port: 80, Every: c.every}).Watch(ctx, func(_ []Target, err error) {
				if err != nil {
					failures++
				}
			})
			lookups := z.first
			if c.fails {
				lookups = failures // of which each asks more than once
			}
			if lookups < c.least || lookups > c.most || (failures > 0) != c.fails {
				t.Errorf("%+v: %d lookups", c, lookups)
			}
		})
	}
}

// After an answer, a failure is tried again at once.
func TestRetriesBeginAnew(t *testing.T) {
	netResolver()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{records: map[string][]dnsmessage.Resource{"app.test.": {a("app.test.", 0, "192.0.2.1")}}, fail: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var failures []time.Time
		z.inMemory().Discoverer(spec.Discover{Network: spec.TCP, Host: "app.test.", Port: 80}).Watch(ctx, func(_ []Target, err error) {
			if err != nil {
				failures = append(failures, time.Now())
			}
			z.mu.Lock()
			defer z.mu.Unlock()
			z.fail = len(failures) != 9 || err == nil // one answer after nine failures
			if len(failures) == 11 {
				cancel()
			}
		})
		if long := failures[8].Sub(failures[7]); long < 20*time.Second {
			t.Errorf("after eight failures it is tried again after %v", long)
		}
		if soon := failures[10].Sub(failures[9]); soon > 2*time.Second {
			t.Errorf("after an answer and a failure it is tried again after %v", soon)
		}
	})
}

// DNS that says that a name is gone has its members removed after a while; a resolver that
// fails never does. Each change is told once.
func TestMissingNames(t *testing.T) {
	netResolver()
	synctest.Test(t, func(t *testing.T) {
		z := &zone{records: map[string][]dnsmessage.Resource{"app.test.": {a("app.test.", 0, "192.0.2.1")}}}
		var mu sync.Mutex
		var events []LookupEvent
		var members []MemberEvent
		cfg := &spec.Group{
			Balance: "round-robin", Lookups: spec.Lookups{Keep: 500 * time.Millisecond},
			Members: []spec.Member{{Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "app.test.", Port: 7}}},
		}
		s, _ := set(t, cfg, Options{
			Discoverer:    z.inMemory().Discoverer,
			LookupChanged: func(e LookupEvent) { mu.Lock(); defer mu.Unlock(); events = append(events, e) },
			MemberChanged: func(e MemberEvent) { mu.Lock(); defer mu.Unlock(); members = append(members, e) },
		})
		defer s.Close()
		if err := s.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		change := func(change func()) {
			z.mu.Lock()
			defer z.mu.Unlock()
			change()
		}
		told := func(want ...LookupEvent) {
			t.Helper()
			testwait.Until(t, "an event", func() bool { mu.Lock(); defer mu.Unlock(); return len(events) >= len(want) })
			mu.Lock()
			defer mu.Unlock()
			for i, e := range events {
				if (e.Err == nil) != (want[i].Err == nil) {
					t.Errorf("%d: %+v", i, e)
				}
				if e.Err = nil; e.Name != "tcp://app.test.:7" || !slices.Equal(e.Groups, []string{"g"}) {
					t.Errorf("%d: %+v", i, e)
				}
				e.Name, e.Groups, want[i].Err = "", nil, nil
				if !reflect.DeepEqual(e, want[i]) {
					t.Errorf("%d: %+v, want %+v", i, e, want[i])
				}
			}
			events = nil
		}
		some := errors.New("some error")
		change(func() { z.fail = true })
		told(LookupEvent{Err: some, Members: 1})
		time.Sleep(2 * cfg.Lookups.Keep)
		synctest.Wait()
		if n := len(memberAddrs(s)); n != 1 {
			t.Errorf("%d members are left of a resolver that fails", n)
		}
		change(func() { z.fail, z.records = false, nil })
		told(LookupEvent{Err: some, Missing: true, Members: 1}, LookupEvent{Err: some, Missing: true, Removed: true})
		if n := len(memberAddrs(s)); n != 0 {
			t.Errorf("%d members are left of a name that is gone", n)
		}
		mu.Lock()
		if e := members[len(members)-1]; e.To != Removed || e.Why != "no longer found by tcp://app.test.:7" {
			t.Errorf("%+v", e)
		}
		mu.Unlock()
		change(func() {
			z.records = map[string][]dnsmessage.Resource{"app.test.": {a("app.test.", 0, "192.0.2.2")}}
		})
		told(LookupEvent{Members: 1})
		if got := memberAddrs(s); !slices.Equal(got, []string{"tcp://192.0.2.2:7"}) {
			t.Errorf("%q", got)
		}
		// Another way to ask for the same keeps what is known.
		change(func() { z.fail = true })
		next := *cfg
		next.Lookups.Keep = time.Hour
		s.Apply([]*spec.Group{&next})
		if got := memberAddrs(s); !slices.Equal(got, []string{"tcp://192.0.2.2:7"}) {
			t.Errorf("after a reload: %q", got)
		}
	})
}

func TestWaitSaysWhatFails(t *testing.T) {
	z := &zone{}
	cfg := &spec.Group{Balance: "first", Members: []spec.Member{{Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "gone.test.", Port: 7}}}}
	s, g := set(t, cfg, Options{Discoverer: z.start(t).Discoverer})
	err := s.Wait(t.Context())
	var no *net.DNSError
	if !errors.As(err, &no) || !no.IsNotFound || !strings.HasPrefix(err.Error(), "tcp://gone.test.:7: ") {
		t.Errorf("%v", err)
	}
	var l Lease
	if m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonNoMember {
		t.Errorf("%v, %v", m, why)
	}
}

// fixed discovers what it has, once.
type fixed []Target

func (f fixed) Watch(ctx context.Context, update func([]Target, error)) {
	update(f, nil)
	<-ctx.Done()
}

// Groups share a look-up, and answers have a bound.
func TestSharedAndBounded(t *testing.T) {
	var many fixed
	for i := range maxTargets + 100 {
		many = append(many, Target{Weight: 1, Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)}})
	}
	asked := 0
	told := make(chan LookupEvent, 9)
	s := NewSet(Options{LookupChanged: func(e LookupEvent) { told <- e }, Discoverer: func(spec.Discover) Discoverer { asked++; return many }})
	t.Cleanup(s.Close)
	groups := []*spec.Group{
		{Name: "a", Balance: "random", Discover: []spec.Discover{{Network: spec.TCP, Host: "many", Port: 80, Weight: 1}}},
		{Name: "b", Balance: "maglev", Discover: []spec.Discover{{Network: spec.TCP, Host: "many", Port: 80, Weight: 2}}},
	}
	s.Apply(groups)
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if n := s.Group(name).Len(); n != maxTargets {
			t.Errorf("%s has %d members", name, n)
		}
	}
	s.Apply(groups[:1])
	if asked != 1 {
		t.Errorf("%d look-ups", asked)
	}
	if l := s.Snapshot()[0].Lookups[0]; l.LeftOut != 100 {
		t.Errorf("%+v", l)
	}
	if e := <-told; e.LeftOut != 100 || e.Members != maxTargets {
		t.Errorf("%+v", e)
	}
}

// asked is a Discoverer whose answers a test gives.
type asked chan func(func([]Target, error))

func (a asked) Watch(ctx context.Context, update func([]Target, error)) {
	for {
		select {
		case answer := <-a:
			answer(update)
		case <-ctx.Done():
			return
		}
	}
}

// Of a name whose members were removed none are left out.
func TestNothingIsLeftOutOfMissingNames(t *testing.T) {
	answers := make(asked, 2)
	answers <- func(update func([]Target, error)) {
		update([]Target{
			{Weight: 1, Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("192.0.2.1:80")}},
			{Weight: 1, Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("192.0.2.2:80")}},
		}, nil)
	}
	s, _ := set(t, &spec.Group{
		Balance: "random", Lookups: spec.Lookups{Keep: time.Millisecond, MaxMembers: 1},
		Discover: []spec.Discover{{Network: spec.TCP, Host: "name", Port: 80}},
	}, Options{Discoverer: func(spec.Discover) Discoverer { return answers }})
	lookup := func() LookupSnapshot { return s.Snapshot()[0].Lookups[0] }
	testwait.Until(t, "a member", func() bool { l := lookup(); return l.Targets == 1 && l.LeftOut == 1 })
	answers <- func(update func([]Target, error)) { update(nil, &net.DNSError{IsNotFound: true}) }
	testwait.Until(t, "no member", func() bool { return lookup().Targets == 0 })
	if l := lookup(); l.LeftOut != 0 {
		t.Errorf("%+v", l)
	}
}

// A real name server, whose zone changes.
func TestNSD(t *testing.T) {
	if _, err := exec.LookPath("nsd"); err != nil {
		t.Skip("nsd is not installed")
	}
	port := testnet.Port(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	serial := 0
	zoneFile := func(hosts string) {
		serial++
		write("test.zone", fmt.Sprintf("$ORIGIN test.\n$TTL 1\n@ SOA ns hostmaster %d 1 1 1 1\n@ NS ns\nns A 127.0.0.1\n"+
			"_app._tcp SRV 1 2 8080 app\n%s", serial, hosts))
	}
	zoneFile("app A 192.0.2.1\napp AAAA 2001:db8::1\n")
	write("nsd.conf", fmt.Sprintf(`
server:
	ip-address: %s@%s
	server-count: 1
	username: ""
	chroot: ""
	database: ""
	zonesdir: %[3]q
	pidfile: ""
	xfrdfile: ""
	xfrdir: %[3]q
	zonelistfile: "%[3]s/zone.list"
	logfile: "%[3]s/log"
remote-control:
	control-enable: no
zone:
	name: test
	zonefile: test.zone
`, loopback, port, dir))
	server := exec.Command("nsd", "-d", "-c", filepath.Join(dir, "nsd.conf"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
	}()
	d := at(loopback + ":" + port)
	app := spec.Discover{Network: spec.TCP, Service: "_app._tcp.test."}
	testwait.Until(t, "nsd", func() bool {
		_, _, err := lookup(t, d, app)
		if err != nil && t.Context().Err() == nil {
			if log, _ := os.ReadFile(filepath.Join(dir, "log")); strings.Contains(string(log), "error") {
				t.Fatalf("%s", log)
			}
		}
		return err == nil
	})
	if _, ttl, _ := lookup(t, d, app); ttl != time.Second {
		t.Errorf("TTL %v, want 1s", ttl)
	}
	s, _ := set(t, &spec.Group{Balance: "first", Discover: []spec.Discover{app}}, Options{Discoverer: d.Discoverer})
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := memberAddrs(s), []string{"tcp://192.0.2.1:8080", "tcp://[2001:db8::1]:8080"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	zoneFile("app A 192.0.2.7\n")
	if err := server.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the new zone", func() bool { return slices.Equal(memberAddrs(s), []string{"tcp://192.0.2.7:8080"}) })
}

// No answer gives a negative TTL, and one that comes in pieces gives the same as a whole one.
func FuzzAnswer(f *testing.F) {
	z := &zone{records: map[string][]dnsmessage.Resource{"a.test.": {a("a.test.", 5, "192.0.2.1"), a("a.test.", 1<<31, "192.0.2.2")}}}
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(z.answer(b, true), uint8(3))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, msg []byte, piece uint8) {
		whole, pieces := &ttlTracker{least: 1<<63 - 1}, &ttlTracker{least: 1<<63 - 1}
		whole.observe(msg)
		if whole.get() < 0 {
			t.Errorf("TTL %v", whole.get())
		}
		if len(msg) > 0xffff {
			return
		}
		in := append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
		c := &streamConn{Conn: &script{in}, ttls: pieces}
		for buf := make([]byte, int(piece)+1); ; {
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
		if whole.get() != pieces.get() {
			t.Errorf("TTL %v of a packet, %v of a stream", whole.get(), pieces.get())
		}
	})
}

// script is a connection that says what it has.
type script struct{ left []byte }

func (s *script) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (*script) Write(b []byte) (int, error)      { return len(b), nil }
func (*script) Close() error                     { return nil }
func (*script) LocalAddr() net.Addr              { return nil }
func (*script) RemoteAddr() net.Addr             { return nil }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }

// scripted gives the answers that a test sends.
type scripted chan func(update func([]Target, error))

func (a scripted) Watch(ctx context.Context, update func([]Target, error)) {
	for {
		select {
		case do := <-a:
			do(update)
		case <-ctx.Done():
			return
		}
	}
}

// A name that is missing, and then cannot be looked up before Keep is over, keeps its members: the
// last word is that nobody knows.
func TestMissingAndThenSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(scripted)
		s, g := set(t, &spec.Group{
			Balance: "round-robin", Lookups: spec.Lookups{Keep: time.Minute},
			Members: []spec.Member{{Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "app.test.", Port: 7}}},
		}, Options{Discoverer: func(spec.Discover) Discoverer { return answers }})
		defer s.Close()
		missing := &net.DNSError{Err: "no such host", IsNotFound: true}
		silence := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
		say := func(targets []Target, err error) {
			answers <- func(update func([]Target, error)) { update(targets, err) }
			synctest.Wait()
		}
		say([]Target{{Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("192.0.2.1:7")}}}, nil)
		say(nil, missing)
		time.Sleep(30 * time.Second)
		say(nil, silence)
		time.Sleep(time.Hour)
		if g.Len() != 1 {
			t.Errorf("%d members after silence", g.Len())
		}
		say(nil, missing)
		time.Sleep(59 * time.Second)
		if synctest.Wait(); g.Len() != 1 {
			t.Errorf("%d members before the time is over", g.Len())
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); g.Len() != 0 {
			t.Errorf("%d members of a name that does not exist", g.Len())
		}
	})
}
