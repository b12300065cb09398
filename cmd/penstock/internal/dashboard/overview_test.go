package dashboard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
)

func TestOverview(t *testing.T) {
	ofThePage(t)
	in := testbrowser.Start(t)
	for _, test := range []struct {
		name string
		do   func(*testing.T, context.Context)
	}{
		{"problems", listsProblems}, {"keeper", tellsOfKeeper}, {"lists of networks", showsLists}, {"map", mapsTraffic}, {"daemon dead", callsNothingWell}, {"daemon hangs", noticesSilence}, {"latency", showsLatency}, {"charts in words", describesCharts},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.do(t, in)
		})
	}
}

// Who opens the page after the worker has died learns it, with what became of the flows; after an upgrade nothing is
// broken. Without a keeper there is nothing to tell.
func tellsOfKeeper(t *testing.T, in context.Context) {
	h := busyHouse()
	h.moves = false
	for i := range h.groups {
		h.groups[i].Lookups = nil
	}
	keeper := func(reason string, up bool) {
		h.now(func() {
			h.status.Keeper = &api.Keeper{PID: 71, Up: up, Since: time.Now().Add(-time.Hour), Worker: 83, WorkerSince: time.Now().Add(-time.Minute), Healthy: reason != "upgrade", Flows: 812,
				Starts: []api.StartCount{{Reason: "crash", Count: 2}, {Reason: "upgrade", Count: 1}, {Reason: "restart"}},
				Last: &api.WorkerStart{Number: 3, Time: time.Now().Add(-time.Minute), Reason: reason, Cause: "signal 9", Version: "v1.3.0", Pause: 0.08,
					RestoredFlows: api.RestoredFlows{Restored: 812, Lost: []api.LostFlows{{Reason: "unsettled", Count: 3}}}}}
		})
	}
	s := serve(t, h)
	b := show(t, in, s, full)
	panel := func(what, want string) {
		t.Helper()
		b.soon(what, fmt.Sprintf("document.getElementById('keeper').innerText.includes(%q)", want))
	}
	b.soon("the page is there", "document.querySelector('#resources li')")
	if eval[bool](b, "document.getElementById('keeper').checkVisibility()") {
		t.Error("a keeper is shown, and there is none")
	}
	keeper("crash", true)
	problem := func(what, want string) {
		t.Helper()
		b.soon(what, fmt.Sprintf("document.getElementById('problem-list').innerText.includes(%q)", want))
	}
	problem("the crash is a problem", "(signal 9), and another one goes on")
	problem("what became of the flows", "812 flows continued, 3 lost (3 unsettled)")
	panel("the keeper has the flows", "holds 812 flows")
	panel("starts are counted", "2 crashes, 1 upgrade")
	keeper("rollback", true)
	problem("the rollback is a problem", "The upgrade was undone at ")
	panel("it says why", "to undo an upgrade (signal 9)")
	keeper("upgrade", true)
	panel("the upgrade is told", "for the upgrade to v1.3.0")
	panel("it is on trial", "on trial after an upgrade")
	b.soon("an upgrade is no problem", "!document.getElementById('problem-list').innerText.match(/worker|upgrade/)")
	keeper("crash", false)
	problem("the end of the keeper is a problem", "The keeper is gone")
	panel("the panel says so", "gone")
}

const problemLines = "#problem-list li a"

// What is broken comes first, the worst before the rest, and leads to where it is; the tab says
// how much there is. When all is well the page says that, too.
func listsProblems(t *testing.T, in context.Context) {
	h := failingHouse()
	h.moves, h.status.State = false, api.StateReady
	s := serve(t, h)
	b := show(t, in, s, full)
	b.soon("all problems are there", "document.querySelectorAll('#problem-list li').length === 7")
	want := []string{"✕ The last reload failed at", "✕ Listener tls accepts no clients", "✕ Group api takes no flows: none of its 3 members is available", "✕ 256 of 256 places in the queue of api are taken", "✕ 1 of 2 members of resolvers is down",
		"✕ The list crowdsec cannot be loaded It is empty: deny refuses nobody by it", "▲ The list partners cannot be loaded What was loaded 1 d 16 h ago is used"}
	for i, got := range b.texts("#problem-list li") {
		if !strings.HasPrefix(strings.Join(strings.Fields(got), " "), want[i]) {
			t.Errorf("problem %d is %q, want %q", i, got, want[i])
		}
	}
	if got := eval[string](b, "document.title"); got != "✕ 7 problems – Penstock" {
		t.Errorf("the title is %q", got)
	}
	b.hasIcon("icon-bad.svg")
	if !eval[bool](b, "document.querySelector('main').firstElementChild.contains(document.getElementById('problem-list')) && document.getElementById('problem-list').getBoundingClientRect().top < document.querySelector('.totals').getBoundingClientRect().top") {
		t.Error("the problems are not first")
	}
	b.click("#problem-list li:nth-child(3) a")
	b.soon("the group is in view", "location.hash === '#group:api' && Math.abs(document.getElementById('group:api').getBoundingClientRect().top) < innerHeight")

	// Flows that are refused now are told with their reason, and lead to those that ended so.
	s.now(func() {
		good := busyHouse()
		h.status.Config.Failed, h.listeners, h.groups, h.lists = nil, good.listeners, good.groups, nil
		h.status.Refusals = []api.Refusal{{Listener: "tls", Reason: "no-member", Count: 17}, {Listener: "tls", Reason: "denied", Count: 1_020}}
		h.status.Hash = strings.Repeat("0", 64)
	})
	b.soon("the refusals are told", fmt.Sprintf("document.querySelector(%q)?.innerText.startsWith('5 flows of tls refused or ended in the last') && document.querySelector(%q).innerText.endsWith(': no-member') && document.querySelectorAll('#problem-list li').length === 1", problemLines, problemLines))
	b.click(problemLines)
	b.soon("the ended flows are filtered", "document.querySelector('#ended-filter [name=problems]').checked && document.querySelector('#ended-filter [name=cause]').value === 'no-member' && location.search.includes('cause=no-member')")
	b.soon("and shown", "[...document.querySelectorAll('#ended-list tbody tr')].length === 4 && [...document.querySelectorAll('#ended-list tbody tr')].every(tr => tr.innerText.includes('refused: no-member'))")

	quiet := serve(t, emptyHouse())
	b = show(t, in, quiet, full)
	b.soon("nothing is broken", "document.getElementById('no-problems').innerText === 'Nothing is broken.' && document.title === 'Penstock'")
}

// Lists of networks have their numbers, their age and what is wrong with them; without one the page does not speak of lists.
func showsLists(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	b.soon("the page is there", "document.querySelector('#listener-list tbody tr')")
	if eval[bool](b, "document.getElementById('lists').checkVisibility() || document.querySelector('nav a[href=\"#lists\"]').checkVisibility()") {
		t.Error("lists are shown, and there is none")
	}
	s.now(func() { h.lists = someLists() })
	b.soon("the lists are there", "document.querySelectorAll('#list-list tbody tr').length === 5")
	for i, want := range [][]string{
		{"drop", "/etc/penstock/drop.txt", "good", "1,042", "31,337", "4\u00a0h ago"},
		{"partners", "cannot be loaded", "connect: connection refused; for 5\u00a0min", "1\u00a0d\u00a016\u00a0h ago", "from the disk"},
		{"scanners", "2 bad lines", "line 7", "998,877", "8.82\u00a0MiB"},
		{"crowdsec", "cannot be loaded", "403 Forbidden", "never"},
		{"office", "not loaded yet", "etcd /lists/office/"},
	} {
		got := b.texts("#list-list tbody tr")[i]
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("list %d is %q, without %q", i, got, part)
			}
		}
	}
}

// The map has every listener, route, group and member; the wider line carries more, the
// health is a mark and a word and not only a colour, and a click leads to the flows.
func mapsTraffic(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	b.soon("the map is drawn", "document.querySelectorAll('#map-picture path:not([data-is=idle])').length >= 13")
	for column, want := range map[string][]string{"listeners": {"tls", "dns"}, "routes": {"api", "office", "default", "default"}, "groups": {"api", "web", "resolvers"},
		"members": {"api-1", "api-2", "api-3", "unix:///run/web.sock", "udp://10.20.1.53:53", "udp://10.20.2.53:53"}} {
		if got := b.texts("[aria-labelledby=map-" + column + "] .name"); !slices.Equal(got, want) {
			t.Errorf("%s are %q, want %q", column, got, want)
		}
	}
	widths := eval[map[string]float64](b, `Object.fromEntries([...document.querySelectorAll('#map-picture path')].map(p => [p.key, Number(p.getAttribute('stroke-width'))]))`)
	api1, api3 := widths[`["g","api"]["m","api","api-1","tcp://10.20.0.11:8443"]`], widths[`["g","api"]["m","api","api-3","tcp://10.20.0.13:8443"]`]
	if api1 < 1.5*api3 || api3 < 1 {
		t.Errorf("the line to api-1 is %v wide, that to api-3 %v: %v", api1, api3, widths)
	}
	s.now(func() {
		m := &h.groups[0].Members[1]
		m.State, m.Available, m.Why = "down", false, "connection refused"
	})
	member := "[aria-labelledby=map-members] li:nth-child(2) .node"
	b.soon("the member is marked", fmt.Sprintf("document.querySelector(%q).dataset.is === 'bad' && document.querySelector(%q + ' .mark').innerText === '✕' && document.querySelector(%q + ' .word').innerText === 'down: connection refused'", member, member, member))
	b.soon("its line is, too", `[...document.querySelectorAll('#map-picture path')].some(p => p.key.includes('api-2') && p.dataset.is === 'bad' && getComputedStyle(p).strokeDasharray !== 'none')`)
	b.click(member)
	b.want(s.biggest(api.Filter{Group: "api", Member: "api-2"})[:50])
	if got := eval[string](b, "location.search + location.hash"); got != "?group=api&member=api-2#flows" {
		t.Errorf("the address is %q", got)
	}

	// A thousand members are a few nodes, broken ones among them, and the way to the rest.
	crowd := serve(t, crowdedHouse())
	b = show(t, in, crowd, full)
	b.soon("the rest is one node", "document.querySelector('[aria-labelledby=map-members] li:nth-child(6)')?.innerText.includes('995 more')")
	if got := b.texts("[aria-labelledby=map-members] .mark"); !slices.Equal(got, []string{"✕", "✕", "✕", "✕", "✕", "✕", "●", "●", "●"}) {
		t.Errorf("the members shown are %q", got)
	}
}

// greens are the elements of the page that have the colour of what is well.
const greens = `(() => {
	const green = [[26, 112, 53], [98, 203, 130]].map(c => 'rgb(' + c.join(', ') + ')');
	return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && [undefined, '::before'].some(p => {
		const s = getComputedStyle(e, p);
		return (!p || s.content !== 'none') && [s.color, s.backgroundColor, s.borderLeftColor].some(c => green.includes(c));
	})).map(e => e.tagName + '.' + e.className);
})()`

// When the daemon is dead nothing stays green: neither the page, nor the tab.
func callsNothingWell(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.soon("what is well is green", greens+".length > 10")
	b.mayFail()
	s.stop()
	b.soon("nothing is green", "document.documentElement.dataset.connection === 'gone' && "+greens+".length === 0")
	if got := eval[string](b, "document.title"); got != "✕ not reachable – Penstock" {
		t.Errorf("the title is %q", got)
	}
	b.hasIcon("icon-gone.svg")
	b.soon("the daemon's state is unknown", "document.getElementById('state').textContent.trim() === 'unknown'")
}

// A daemon that hangs closes no connection: the page notices that nothing comes.
func noticesSilence(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	h.mu.Lock() // no answer any more
	locked := true
	defer func() {
		if locked {
			h.mu.Unlock()
		}
	}()
	b.mayFail()
	b.soon("the silence is told", "['stale', 'gone'].includes(document.documentElement.dataset.connection) && document.title !== 'Penstock' && "+greens+".length === 0")
	b.soon("and then that it is gone", "document.documentElement.dataset.connection === 'gone'")
	h.mu.Unlock()
	locked = false
	b.soon("it is back", "document.documentElement.dataset.connection === 'live' && "+greens+".length > 0")
}

// Percentiles of connect and first byte, over time and by group.
func showsLatency(t *testing.T, in context.Context) {
	h := busyHouse()
	h.groups[0].Latency = latencyAt(0)
	s := serve(t, h)
	b := show(t, in, s, full)
	b.soon("percentiles are there", `[...document.querySelectorAll('#charts figure')].slice(4).every(f => [...f.querySelectorAll('.legend b')].length === 3 && [...f.querySelectorAll('.legend b')].every(b => /^[\d.]+\s(µs|ms)$/.test(b.innerText)))`)
	b.soon("a group has them", `/connect p50 \d+\sµs, p99 [\d.]+\sms · first byte p50/.test(document.querySelector('#group-list header p')?.innerText)`)
}

// A chart is a sentence and a table for those who cannot see its lines.
func describesCharts(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.soon("each chart has its sentence", `[...document.querySelectorAll('#charts figure')].length === 6 && [...document.querySelectorAll('#charts figure')].slice(0, 4).every(f => /now .*, least .*, most /.test(document.getElementById(f.getAttribute('aria-describedby')).textContent))`)
	b.click("#charts figure summary")
	b.soon("the table has lines", "document.querySelector('#charts figure tbody tr')?.checkVisibility() && document.querySelectorAll('#charts figure:first-child thead th').length === 3")
	if got := b.texts("#charts figure:first-child tbody tr:first-child td"); len(got) != 2 || !strings.Contains(got[1], "MiB/s") {
		t.Errorf("the table's line is %q", got)
	}
	eval[chromedp.Void](b, "document.activeElement.blur()")
}
