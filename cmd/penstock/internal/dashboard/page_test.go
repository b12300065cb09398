package dashboard_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/dashboard"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

const (
	full     = "full-token-0123456789"
	readOnly = "read-token-0123456789"
)

// site is an admin server on loopback TCP that serves the page.
type site struct {
	*house
	t      *testing.T
	events *admin.Events
	server *admin.Server
	served chan error
	at     net.Addr
}

func serve(t *testing.T, h *house) *site {
	t.Helper()
	s := &site{house: h, t: t, events: new(admin.Events)}
	s.start(spec.Endpoint{Kind: spec.TCP, Host: "127.0.0.1"})
	t.Cleanup(s.stop)
	return s
}

func (s *site) start(at spec.Endpoint) {
	s.t.Helper()
	l, err := admin.Listen(at, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.at = l.Addr()
	s.server = admin.New(s.house, admin.Config{Token: full, ReadToken: readOnly, Events: s.events, Started: s.status.Config.Loaded, Page: dashboard.Files()})
	s.served = make(chan error, 1)
	go func(server *admin.Server, served chan<- error) { served <- server.Serve(l) }(s.server, s.served)
}

func (s *site) stop() {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.server.Close(ctx)
	if err := <-s.served; err != nil {
		s.t.Error("Serve:", err)
	}
	s.server = nil
}

func (s *site) origin() string { return "http://" + s.at.String() }

// show opens the page with a token, and waits for a sample.
func show(t *testing.T, in context.Context, s *site, token string) *tab {
	t.Helper()
	b := open(t, in, s.origin())
	b.enter("#token input", token)
	b.live()
	return b
}

// live waits for a sample.
func (b *tab) live() {
	b.t.Helper()
	b.soon("a sample has come", "document.documentElement.dataset.connection === 'live' && document.getElementById('total-begun').textContent !== '–'")
}

const rows = "#flow-list tbody tr"

func (b *tab) ids() []string {
	b.t.Helper()
	return eval[[]string](b, "[...document.querySelectorAll('#flow-list tbody .id')].map(e => e.dataset.id)")
}

// want waits for the listing to have these flows, in this order.
func (b *tab) want(ids []string) {
	b.t.Helper()
	js := fmt.Sprintf("[...document.querySelectorAll('#flow-list:not(:has(table[hidden])) tbody .id')].map(e => e.dataset.id).join() === %q", strings.Join(ids, ","))
	b.soon("the flows are "+strings.Join(ids, ","), js)
}

func TestPage(t *testing.T) {
	in := testbrowser.Start(t)
	for _, test := range []struct {
		name string
		do   func(*testing.T, context.Context)
	}{
		{"agrees with the API", agrees}, {"filter", filters}, {"kill", kills}, {"members", changesMembers},
		{"read token", readsOnly}, {"wrong token", wrongToken}, {"daemon gone", reconnects}, {"hostile text", hostile}, {"empty", empty}, {"keyboard", keyboard},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.do(t, in)
		})
	}
}

// What the page shows is what the API says.
func agrees(t *testing.T, in context.Context) {
	h := busyHouse()
	h.moves = false
	h.status.Totals = api.Numbers{Flows: 130, Begun: 123_456, Refused: 789, Failed: 12, BytesUp: 1_234_567_890, BytesDown: 9_876_543_210}
	h.status.Config.Failed = failingHouse().status.Config.Failed
	s := serve(t, h)
	s.events.Add(api.Event{Level: "warn", Kind: "health", Subject: "api/api-3", Message: "is down: connection refused"})
	b := show(t, in, s, full)
	for selector, want := range map[string]string{
		"#version": "v1.2.3", "#state": "ready", "#hash": h.status.Config.Hash[:12], "#source": h.status.Config.Source,
		"#total-flows": "130", "#total-begun": "123,456", "#total-refused": "789", "#total-failed": "12", "#total-up": "1.15\u00a0GiB", "#total-down": "9.20\u00a0GiB",
	} {
		if got := b.text(selector); got != want {
			t.Errorf("%s is %q, want %q", selector, got, want)
		}
	}
	if got := eval[string](b, "document.getElementById('total-down').title"); got != "9,876,543,210 bytes" {
		t.Errorf("bytes down are %q", got)
	}
	if got := b.texts("#reload-errors li"); len(got) != 2 || !strings.HasPrefix(got[0], "/etc/penstock/penstock.yaml:14:7 unknown group") || !strings.Contains(got[0], "allowed: api, resolvers, web") {
		t.Errorf("the reload's problems are %q", got)
	}
	if got := b.texts("#loops li"); len(got) != len(h.status.Loops) {
		t.Errorf("%d loops, want %d", len(got), len(h.status.Loops))
	}
	b.soon("groups are there", "document.querySelectorAll('#group-list article').length === 3")
	if got := b.texts("#group-list .state"); !slices.Equal(got, []string{"up", "up", "drained", "up", "up", "up"}) {
		t.Errorf("member states are %q", got)
	}
	if got := b.text("#group-list article:first-child tbody tr:nth-child(3)"); !strings.Contains(got, "an operator asked for it") {
		t.Errorf("the drained member is %q", got)
	}
	b.soon("listeners are there", "document.querySelectorAll('#listener-list tbody tr').length === 6")
	if got := b.text("#listener-list tbody tr:nth-child(2)"); !strings.Contains(got, "SNI api.example.com, *.api.example.com; ALPN h2") {
		t.Errorf("the route is %q", got)
	}
	if got := b.texts("#paths tbody tr"); len(got) != len(h.status.Paths) || !strings.Contains(got[1], "small reads") || !strings.Contains(got[1], "118,230") {
		t.Errorf("data paths are %q", got)
	}
	b.soon("the event is there", "document.querySelector('#event-list li[data-level=warn]')?.innerText.includes('connection refused')")
	biggest := s.biggest(api.Filter{})
	b.want(biggest[:50])
	b.click("#more-flows")
	b.want(biggest[:100])

	b.click(rows + " .id")
	b.soon("the detail is open", "document.querySelector('dialog.detail')?.open")
	f, _ := s.Flow(context.Background(), 130)
	detail := b.text("dialog.detail")
	for _, want := range []string{"Flow 130", f.Client.String(), f.Upstream.String(), "splice", "Not faster: small reads", "24.1\u00a0ms ± 3.2\u00a0ms", "210\u00a0µs ± 40\u00a0µs", "bbr", "cubic", "17 segments", "h2, http/1.1"} {
		if !strings.Contains(detail, want) {
			t.Errorf("%q is not in the detail: %s", want, detail)
		}
	}
	if got := b.texts("dialog.detail .scroll tbody tr:nth-child(7) td"); !slices.Equal(got, []string{"1,448 B", "8,948 B"}) {
		t.Errorf("segment sizes are %q", got)
	}
	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("cookies: %s", cookies)
	}
}

func filters(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.want(s.biggest(api.Filter{})[:50])
	b.enter("#filter [name=listener]", "dns")
	b.want(s.biggest(api.Filter{Listener: "dns"}))
	if got := b.text("#flows-count"); got != "13 of 130 open flows match" {
		t.Errorf("the count is %q", got)
	}
	// What the API refuses is said beside the filter, as the API says it.
	b.mayFail()
	b.enter("#filter [name=source]", "nonsense")
	b.soon("the mistake is told", "document.getElementById('flows-problem').innerText.includes('a prefix such as 10.0.0.0/8')")
	b.click("#filter [type=reset]")
	b.want(s.biggest(api.Filter{})[:50])
	b.soon("and is gone", "document.getElementById('flows-problem').hidden")
	// A member's number of flows leads to them.
	b.click("#group-list article:first-child tbody tr:nth-child(2) td a")
	b.want(s.biggest(api.Filter{Group: "api", Member: "api-2"})[:50])
	b.click("#filter [type=reset]")
	// By age the oldest is first.
	b.click("#flow-list th[aria-sort] .sort[type=button]")
	b.click("#flow-list th:nth-child(8) .sort")
	b.soon("the oldest is first", "document.querySelector('#flow-list tbody .id').dataset.id === '130' && document.querySelector('#flow-list th:nth-child(8)').ariaSort === 'descending'")
	s.now(func() { s.flows = nil })
	b.soon("there is nothing to show", "document.getElementById('no-flows').innerText === 'No flow is open.'")
}

func kills(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.want(s.biggest(api.Filter{})[:50])
	b.click(rows + " .id")
	b.click("dialog.detail .danger")
	b.soon("it asks", "document.querySelector('dialog.confirm[open]')?.innerText.includes('End flow 130?')")
	b.click("dialog.confirm[open] button[type=button]:not(.icon)")
	b.soon("no was taken", "!document.querySelector('dialog.confirm[open]')")
	if _, there := s.Flow(context.Background(), 130); !there {
		t.Fatal("the flow ended though the answer was no")
	}
	b.mayFail() // the detail may ask for the flow once more
	b.click("dialog.detail .danger")
	b.click("dialog.confirm[open] [type=submit]")
	b.soon("the end is told", "document.getElementById('said').innerText === 'Flow 130 was ended.'")
	if _, there := s.Flow(context.Background(), 130); there {
		t.Fatal("the flow is still there")
	}
	b.soon("the detail says so", "document.querySelector('dialog.detail.ended')")
	b.key(kb.Escape)
	b.want(s.biggest(api.Filter{})[:50])
}

func changesMembers(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.click("#group-list tbody tr:first-child .act button")
	b.soon("it asks", "document.querySelector('dialog.confirm[open]')?.innerText.includes('Change api-1')")
	b.focus("dialog.confirm[open] input[value='']")
	b.key(kb.ArrowDown)
	b.key(kb.ArrowDown) // past enable
	b.focus("#weight")
	eval[chromedp.Void](b, "document.getElementById('weight').select()")
	call(b, input.InsertText, input.InsertTextParams{Text: "7"})
	b.click("dialog.confirm[open] [type=submit]")
	b.soon("the member is drained", "document.querySelector('#group-list tbody .state').innerText === 'drained'")
	s.now(func() {
		if want := []string{"api/tcp://10.20.0.11:8443 drain 7"}; !slices.Equal(s.changes, want) {
			t.Errorf("changes are %q, want %q", s.changes, want)
		}
	})
	// A change of nothing cannot be asked for; what the daemon refuses is said in the question, which stays.
	b.mayFail()
	b.click("#group-list tbody tr:first-child .act button")
	b.soon("there is nothing to do", "document.querySelector('dialog.confirm[open] [type=submit]')?.disabled")
	s.now(func() { s.groups[0].Name = "renamed" })
	b.focus("dialog.confirm[open] input[value='']")
	b.key(kb.ArrowDown)
	b.click("dialog.confirm[open] [type=submit]")
	b.soon("the mistake is told", "document.querySelector('dialog.confirm[open] .problem')?.innerText.includes('no member')")
}

func readsOnly(t *testing.T, in context.Context) {
	s := serve(t, splitHouse())
	b := show(t, in, s, readOnly)
	b.soon("parts are there", "document.querySelector('#split-list tbody tr')")
	b.soon("members are there", "document.querySelector('#group-list tbody tr')")
	b.click(rows + " .id")
	b.soon("the detail is open", "document.querySelector('dialog.detail')?.open")
	if n := eval[int](b, "[...document.querySelectorAll('.full, .act button')].filter(e => e.checkVisibility()).length"); n != 0 {
		t.Errorf("%d actions are offered to the read token", n)
	}
	if got := b.text("#read-only"); got != "read-only" {
		t.Errorf("the badge is %q", got)
	}
}

func wrongToken(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := open(t, in, s.origin())
	b.enter("#token input", "no-token-at-all")
	b.soon("it says so", "document.getElementById('wrong-token').checkVisibility()")
	b.key(kb.Escape)
	b.enter("#token input", readOnly)
	b.live()
	if kept := eval[string](b, "JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])"); kept != `[[],[["penstock-token","`+readOnly+`"]]]` {
		t.Errorf("kept is %s", kept)
	}
	b.click("#forget")
	b.soon("it asks again", "document.getElementById('token')?.open && sessionStorage.length === 0")
}

// A daemon that goes away is seen, and one that comes back at the same place is, too.
func reconnects(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.mayFail()
	s.stop()
	b.soon("the page says so", "document.getElementById('gone').checkVisibility() && document.getElementById('connection').innerText === 'not reachable'")
	s.now(func() { s.status.Version = "v1.3.0" })
	at := s.at.(*net.TCPAddr)
	s.start(spec.Endpoint{Kind: spec.TCP, Host: "127.0.0.1", Port: uint16(at.Port)})
	b.soon("the next one is shown", "!document.getElementById('gone').checkVisibility() && document.getElementById('version').innerText === 'v1.3.0'")
}

// Names that come from clients and files are text.
func hostile(t *testing.T, in context.Context) {
	const evil = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>"'&`
	h := busyHouse()
	h.flows[129].SNI, h.flows[129].Member, h.flows[129].Up.Why = evil, evil, evil
	h.groups[0].Name, h.groups[0].Members[0].Name, h.groups[0].Members[0].Why = evil, evil, evil
	h.listeners[0].Name, h.listeners[0].Routes[0].SNI = evil, []string{evil}
	h.status.Version, h.status.Config.Source = evil, evil
	h.status.Paths[0].Why = evil
	h.status.Config.Failed = &api.FailedReload{Time: time.Now(), Errors: []api.ConfigError{{Source: evil, Message: evil, Allowed: evil}}}
	s := serve(t, h)
	s.events.Add(api.Event{Level: evil, Kind: evil, Subject: evil, Message: evil})
	b := show(t, in, s, full)
	for what, selector := range map[string]string{"the version": "#version", "a path": "#paths", "an event": "#event-list", "a listener": "#listener-list", "a group": "#group-list header",
		"a member": "#group-list tbody", "a reload": "#reload-errors", "a flow": "#flow-list tbody"} {
		b.soon(what+" has it as text", fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q)", selector, evil))
	}
	b.click(rows + " .id")
	b.soon("a detail has it as text", fmt.Sprintf("document.querySelector('dialog.detail')?.textContent.includes(%q)", evil))
	b.key(kb.Escape)
	b.click("#group-list .act button")
	b.soon("a question has it as text", fmt.Sprintf("document.querySelector('dialog.confirm[open]')?.textContent.includes(%q)", evil))
	if eval[bool](b, "'hit' in window || document.querySelector('img, main script') !== null") {
		t.Error("a name became markup")
	}
}

func empty(t *testing.T, in context.Context) {
	s := serve(t, emptyHouse())
	b := show(t, in, s, full)
	for id, want := range map[string]string{"no-flows": "No flow is open.", "no-groups": "No group is configured.", "no-listeners": "No listener is configured.", "no-paths": "No flow has ended yet.", "no-events": "Nothing has happened yet."} {
		b.soon(want, fmt.Sprintf("document.getElementById(%q).checkVisibility() && document.getElementById(%q).innerText === %q", id, id, want))
	}
}

// The first stop of the keyboard leads past the head, a dialog keeps the focus,
// and gives it back; what comes in every second does not take it away.
func keyboard(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.want(s.biggest(api.Filter{})[:50])
	eval[chromedp.Void](b, "document.activeElement.blur(), scrollTo(0, 0)")
	b.key(kb.Tab)
	if got := eval[string](b, "document.activeElement.textContent"); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	b.key(kb.Enter)
	b.soon("the content has the focus", "document.activeElement.id === 'main'")
	b.focus(rows + ":nth-child(3) .id")
	focused := b.ids()[2]
	s.now(func() { s.flows = s.flows[:129] }) // the first of the list ends
	eval[chromedp.Void](b, "document.getElementById('filter').requestSubmit()")
	b.want(s.biggest(api.Filter{})[:50])
	if got := eval[string](b, "document.activeElement.dataset.id"); got != focused {
		t.Errorf("the focus went from %s to %q", focused, got)
	}
	b.key(kb.Enter)
	b.soon("the detail has the focus", "document.querySelector('dialog.detail')?.contains(document.activeElement)")
	for range 6 {
		b.key(kb.Tab)
		if !eval[bool](b, "document.activeElement === document.body || document.querySelector('dialog.detail').contains(document.activeElement)") {
			t.Fatalf("the focus left the dialog for %s", eval[string](b, "document.activeElement.outerHTML"))
		}
	}
	b.key(kb.Escape)
	b.soon("the focus is back", fmt.Sprintf("document.activeElement.dataset.id === %q", focused))
}
