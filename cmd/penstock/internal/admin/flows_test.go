package admin

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// ids of a listing.
func ids(l api.Flows) (list []uint64) {
	for i := range l.Flows {
		list = append(list, l.Flows[i].ID)
	}
	return list
}

func TestListing(t *testing.T) {
	const flows = 1000
	r := newRig(t, &synthetic{flows: flows, members: 10})
	ctx := context.Background()
	all, err := r.client.Flows(ctx, api.Filter{}, api.Page{})
	if err != nil || len(all.Flows) != flows || all.Matched != flows || all.Total != flows || all.Next != "" {
		t.Fatalf("%d flows of %d, %d, next %q, %v", len(all.Flows), all.Matched, all.Total, all.Next, err)
	}
	for i := range all.Flows {
		if want := r.source.flow(int(all.Flows[i].ID - 1)); all.Flows[i] != want {
			t.Fatalf("%+v, want %+v", all.Flows[i], want)
		}
	}
	// Page by page in the order of ids: each once.
	var paged []uint64
	for p := (api.Page{Limit: 300}); ; {
		l, err := r.client.Flows(ctx, api.Filter{}, p)
		if err != nil {
			t.Fatal(err)
		}
		paged = append(paged, ids(l)...)
		if l.Next == "" {
			break
		}
		if _, err := fmt.Sscan(l.Next, &p.Cursor); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range paged {
		if id != uint64(i+1) {
			t.Fatalf("place %d has flow %d", i, id)
		}
	}
	if len(paged) != flows {
		t.Errorf("%d flows in pages", len(paged))
	}
	r = newRig(t, &synthetic{flows: flows, moves: true})
	for _, sort := range api.Sorts {
		l, err := r.client.Flows(ctx, api.Filter{}, api.Page{Sort: sort, Limit: 3, Window: map[string]time.Duration{"rate": time.Millisecond}[sort]})
		if want := []uint64{1000, 999, 998}; err != nil || !slices.Equal(ids(l), want) || l.Matched != flows {
			t.Errorf("by %s: %v, %v, want %v", sort, ids(l), err, want)
		}
		if sort == "rate" && l.Flows[0].Rate <= 0 {
			t.Errorf("a rate of %v", l.Flows[0].Rate)
		}
	}
}

func TestFilters(t *testing.T) {
	r := newRig(t, &synthetic{flows: 1000, members: 10})
	for _, c := range []struct {
		name   string
		filter api.Filter
		want   int
	}{
		{"source", api.Filter{Source: netip.MustParsePrefix("192.0.1.0/24")}, 256},
		{"address", api.Filter{Source: netip.MustParsePrefix("192.0.0.7/32")}, 1},
		{"listener", api.Filter{Listener: "dns"}, 100},
		{"member", api.Filter{Member: memberName(3)}, 100},
		{"age", api.Filter{MinAge: 10 * time.Second, MaxAge: 19 * time.Second}, 10},
		{"idle", api.Filter{MinIdle: time.Second}, 0},
		{"bytes", api.Filter{MinBytes: 999_000}, 2},
		{"path", api.Filter{Path: "splice"}, 1000},
		{"kind", api.Filter{Kind: "datagram"}, 100},
		{"two at once", api.Filter{Kind: "datagram", MaxAge: 20 * time.Second}, 2},
		{"none", api.Filter{Route: "none"}, 0},
	} {
		l, err := r.client.Flows(context.Background(), c.filter, api.Page{})
		if err != nil || len(l.Flows) != c.want || l.Total != 1000 {
			t.Errorf("%s: %d of %d, %v, want %d", c.name, len(l.Flows), l.Total, err, c.want)
		}
		r.source.forget()
		killed, err := r.client.KillAll(context.Background(), c.filter)
		if err != nil || killed != int64(c.want) {
			t.Errorf("%s: killed %d, %v", c.name, killed, err)
		}
	}
	if _, err := r.client.KillAll(context.Background(), api.Filter{}); problem(err) != 400 {
		t.Errorf("killing without a filter: %v", err)
	}
	if e := r.events.After(0); len(e.Events) != 11 || e.Events[2].Subject != "listener=dns" {
		t.Errorf("events %+v", e)
	}
}

// A client that does not read its listing keeps the walk waiting, not the memory growing; when it goes, the walk ends.
func TestSlowReaderOfAListing(t *testing.T) {
	var walked atomic.Int64
	r := newRig(t, &synthetic{flows: 200_000, walked: func() { walked.Add(1) }})
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v1/flows HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	testwait.Until(t, "the walk has ended", func() bool { return len(r.server.listings.slots) == 0 })
	if walked.Load() >= 200_000/256 {
		t.Error("the whole engine was walked for a client that had gone")
	}
}

// At most maxListings run at once; who waits and goes away is forgotten.
func TestWalksAreBounded(t *testing.T) {
	hold := make(chan struct{})
	r := newRig(t, &synthetic{flows: 1, walked: func() { <-hold }})
	results := make(chan error, maxListings+1)
	ctx, cancel := context.WithCancel(context.Background())
	for range maxListings {
		go func() {
			_, err := r.client.Flows(context.Background(), api.Filter{}, api.Page{Limit: 1})
			results <- err
		}()
	}
	testwait.Until(t, "they walk", func() bool { return len(r.server.listings.slots) == maxListings })
	go func() {
		_, err := r.client.Flows(ctx, api.Filter{}, api.Page{Limit: 1})
		results <- err
	}()
	cancel()
	if err := <-results; err == nil {
		t.Error("the one that was given up has an answer")
	}
	close(hold)
	for range maxListings {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// topFlows keeps what sorting everything would put first.
func TestTop(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		flows := make([]api.Flow, random.IntN(50))
		for i := range flows {
			flows[i] = api.Flow{ID: uint64(i), Age: float64(random.IntN(10)), Rate: random.Float64(), Up: api.Transfer{Bytes: random.Int64N(5)}}
		}
		sort := []string{"", "bytes", "age", "rate"}[random.IntN(4)]
		most := 1 + random.IntN(20)
		top := newTopFlows(most, order(sort))
		for _, i := range random.Perm(len(flows)) {
			top.offer(&flows[i])
		}
		slices.SortFunc(flows, func(a, b api.Flow) int { return order(sort)(&a, &b) })
		want := flows[:min(most, len(flows))]
		if got := top.sorted(); !slices.Equal(got, want) || top.more != (len(flows) > most) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func TestMembers(t *testing.T) {
	r := newRig(t, &synthetic{members: 3})
	weight := 9
	m, err := r.client.SetMember(context.Background(), "backends", memberName(2), api.MemberChange{Weight: &weight, State: "drain"})
	if err != nil || len(m.Members) != 1 || m.Members[0].Name != memberName(2) || m.Members[0].Weight != 9 || *r.source.changes[0].Weight != 9 {
		t.Errorf("%+v, %v", m, err)
	}
	if e := r.events.After(0); len(e.Events) != 1 || e.Events[0].Subject != "backends/"+memberName(2) {
		t.Errorf("%+v", e)
	}
	g, err := r.client.Group(context.Background(), "backends")
	if err != nil || len(g.Members) != 3 {
		t.Errorf("%+v, %v", g, err)
	}
	bad := []api.ConfigError{{Line: 3, Message: "no such group", Allowed: "a, b"}}
	r = newRig(t, &synthetic{bad: bad})
	if _, err := r.client.Reload(context.Background()); problem(err) != 422 || !slices.Equal(err.(*api.Problem).Errors, bad) {
		t.Errorf("a reload that fails: %v", err)
	}
}

func TestEvents(t *testing.T) {
	var e Events
	for i := range 2*keptEvents + 5 {
		e.Add(api.Event{Message: fmt.Sprint(i + 1)})
	}
	last := e.Last()
	for _, c := range []struct{ after, first, dropped uint64 }{
		{0, last - keptEvents + 1, last - keptEvents}, {last - keptEvents, last - keptEvents + 1, 0}, {last - 3, last - 2, 0}, {10, last - keptEvents + 1, last - keptEvents - 10},
	} {
		got := e.After(c.after)
		if got.Dropped != c.dropped || got.Events[0].ID != c.first || got.Events[len(got.Events)-1].ID != last || got.Events[0].Message != fmt.Sprint(c.first) {
			t.Errorf("after %d: dropped %d, from %d", c.after, got.Dropped, got.Events[0].ID)
		}
	}
	if got := e.After(last); len(got.Events) != 0 || got.Dropped != 0 {
		t.Errorf("%+v", got)
	}
}

// BenchmarkList is the handler that lists all flows of a synthetic source, of
// which made is what making them up costs.
func BenchmarkList(b *testing.B) {
	for _, query := range []string{"", "?sort=bytes&limit=20", "?source=10.0.0.0/8", "made"} {
		b.Run("flows=100000/query="+strings.TrimPrefix(query, "?"), func(b *testing.B) {
			source := &synthetic{flows: 100_000, members: 10}
			s := New(source, Config{})
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				if query == "made" {
					source.Flows(context.Background(), func([]api.Flow) bool { return true })
					continue
				}
				w := counting{header: http.Header{}}
				if err := s.flows(&w, httptest.NewRequest("GET", "/v1/flows"+query, nil)); err != nil {
					b.Fatal(err)
				}
				bytes = w.bytes
			}
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}

func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "source=10.0.0.0/8&listener=a&sort=bytes&limit=5", "min_age=5m&max_age=1h&min_bytes=100", "cursor=5&limit=10", "sort=rate&window=1s", "a=%zz", "source=::1&state=relaying"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := query(&http.Request{URL: &url.URL{RawQuery: text}})
		if err != nil {
			return
		}
		filter, err := api.ParseFilter(q)
		if err != nil {
			return
		}
		page, err := api.ParsePage(q)
		if err != nil || rejectUnknown(q) != nil {
			return
		}
		again := filter.Query()
		page.Query(again)
		if f2, err := api.ParseFilter(again); err != nil || f2 != filter {
			t.Errorf("%q: %+v becomes %+v, %v", text, filter, f2, err)
		}
		if p2, err := api.ParsePage(again); err != nil || p2 != page || len(again) != 0 {
			t.Errorf("%q: %+v becomes %+v, %v", text, page, p2, err)
		}
	})
}
