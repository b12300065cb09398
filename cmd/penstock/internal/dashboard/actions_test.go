package dashboard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
)

func TestActions(t *testing.T) {
	in := testbrowser.Start(t)
	for _, test := range []struct {
		name string
		do   func(*testing.T, context.Context)
	}{
		{"member", namesEffects}, {"members at run time", addsMembers}, {"filtered flows", endsFlows}, {"reload", reloads}, {"weights", changesWeights}, {"drain", drains}, {"audit", tellsWho},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.do(t, in)
		})
	}
}

const (
	question = "dialog.confirm[open]"
	yes      = question + " [type=submit]"
)

// choose picks a state in the question about a member, and waits for what it says of it.
func (b *tab) choose(state, effect, button string, disabled bool) {
	b.t.Helper()
	b.focus(fmt.Sprintf(question+" input[value=%q]", state))
	b.key(" ")
	b.soon(fmt.Sprintf("%s: %q, %q", state, effect, button), fmt.Sprintf("document.querySelector(%q).innerText.trim() === %q && document.querySelector(%q).innerText === %q && document.querySelector(%q).disabled === %t",
		question+" .effect", effect, yes, button, yes, disabled))
}

// fill types into a field.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.focus(selector)
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

// An action names its effect, and what ends many flows or leaves a group without members has to be typed.
func namesEffects(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	b.click("#group-list article:nth-child(1) tbody tr:nth-child(2) .act button")
	b.choose("enable", "", "Enable api-2", false)
	b.choose("drain", "", "Drain api-2", false)
	b.choose("disable", "Ends 321 flows.", "Disable api-2, end 321 flows", true)
	if got := b.text(question); !strings.Contains(got, "takes no new flows; 321 flows go on") || !strings.Contains(got, "Type 321 to go on") {
		t.Errorf("the question is %s", got)
	}
	if got := eval[string](b, fmt.Sprintf("document.querySelector(%q).className", yes)); got != "danger" {
		t.Errorf("the button is %s", got)
	}
	b.fill(question+" .typed input", "32")
	b.soon("it is not enough", fmt.Sprintf("document.querySelector(%q).disabled", yes))
	b.fill(question+" .typed input", "1")
	b.click(yes)
	b.soon("the member is disabled", "document.querySelector('#group-list tbody tr:nth-child(2) .state').innerText === 'disabled'")

	// The only member that is available.
	b.click("#group-list article:nth-child(2) tbody tr .act button")
	b.choose("drain", "No other member of web is available: its new flows will be refused.", "Drain unix:///run/web.sock", true)
	b.fill(question+" .typed input", "web")
	b.click(yes)
	b.soon("the member is drained", "document.querySelector('#group-list article:nth-child(2) .state').innerText === 'drained'")
	s.now(func() {
		if want := []string{"api/tcp://10.20.0.12:8443 disable 10", "web/unix:///run/web.sock drain 10"}; !slices.Equal(h.changes, want) {
			t.Errorf("changes are %q, want %q", h.changes, want)
		}
	})
}

// Members come and go at run time; how they differ from the file is shown, and can be undone.
func addsMembers(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	const group = "#group-list article:first-child "
	b.click(group + "header button")
	b.soon("an address is wanted", fmt.Sprintf("document.querySelector(%q)?.disabled", yes))
	b.mayFail()
	b.fill(question+" [name=address]", "10.20.0.14")
	b.click(yes)
	b.soon("what is wrong is told", fmt.Sprintf("document.querySelector(%q)?.innerText.includes('a URL, such as')", question+" .problem"))
	eval[chromedp.Void](b, fmt.Sprintf("document.querySelector(%q).value = ''", question+" [name=address]"))
	b.fill(question+" [name=address]", "tcp://10.20.0.14:8443")
	b.fill(question+" [name=name]", "api-4")
	b.soon("the effect is told", fmt.Sprintf("document.querySelector(%q).innerText === 'api sends new flows there, too.'", question+" .effect"))
	b.click(yes)
	b.soon("it is there", fmt.Sprintf("document.querySelectorAll(%q).length === 4 && document.querySelector(%q).innerText.includes('1 differ from the file')", group+"tbody tr", group+"header"))
	b.soon("it is told beside the configuration", "document.querySelector('#member-changes li')?.innerText.startsWith('api / api-4 added: to tcp://10.20.0.14:8443') && document.getElementById('member-yaml').textContent.startsWith('groups:')")

	b.click(group + "tbody tr:nth-child(2) .act button")
	b.choose("remove", "Removes api-2 from api; the route decides what happens to its 321 flows.", "Remove api-2", false)
	b.click(yes)
	b.soon("it is gone", fmt.Sprintf("document.querySelectorAll(%q).length === 3 && document.querySelectorAll('#member-changes li').length === 2", group+"tbody tr"))
	b.click("#member-changes li:first-child button")
	b.click(yes)
	b.soon("the first is undone", fmt.Sprintf("document.querySelectorAll(%q).length === 2 && document.querySelectorAll('#member-changes li').length === 1", group+"tbody tr"))
	for _, want := range []string{"was added at tcp://10.20.0.14:8443, weight 1", "was removed"} {
		b.soon("the event is there", fmt.Sprintf("[...document.querySelectorAll('#event-list li')].some(li => li.innerText.includes(%q) && li.innerText.includes('by full token'))", want))
	}
}

// All flows of a filter are ended at once: the number is told, and a great one typed.
func endsFlows(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	b.want(s.biggest(api.Filter{})[:50])
	if eval[bool](b, "document.getElementById('end-flows').checkVisibility()") {
		t.Error("without a filter all flows could be ended")
	}
	b.enter("#filter [name=listener]", "dns")
	b.soon("the number is told", "document.getElementById('end-flows').innerText === 'End these 13 flows…'")
	b.click("#end-flows")
	b.soon("it asks", fmt.Sprintf("document.querySelector(%q)?.innerText.includes('listener dns')", question))
	if got := b.text(question + " .effect"); got != "Ends 13 flows." {
		t.Errorf("the effect is %q", got)
	}
	b.click(yes)
	b.soon("the end is told", "document.getElementById('said').innerText === '13 flows were ended.'")
	if left := s.biggest(api.Filter{}); len(left) != 117 {
		t.Errorf("%d flows are left", len(left))
	}
	b.soon("none is left", "document.getElementById('no-flows').checkVisibility() && !document.getElementById('end-flows').checkVisibility()")
	b.click("#filter [type=reset]")
	b.enter("#filter [name=listener]", "tls")
	b.soon("the number is told", "document.getElementById('end-flows').innerText === 'End these 117 flows…'")
	b.click("#end-flows")
	b.soon("it has to be typed", fmt.Sprintf("document.querySelector(%q)?.disabled", yes))
	b.fill(question+" .typed input", "117")
	b.click(yes)
	b.soon("the end is told", "document.getElementById('said').innerText === '117 flows were ended.'")
}

// The page shows what runs and what a reload would change; a reload names what it ends.
func reloads(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	b.soon("the difference is told", "document.getElementById('diff').innerText === 'The file differs from what runs: 2 changes.'")
	if got := b.texts("#diff-list li"); len(got) != 2 || got[0] != "member api/api-2 removed – 412 flows end or drain" || got[1] != "listener tls changed: limits.flows" {
		t.Errorf("the changes are %q", got)
	}
	b.click("#running-text summary")
	b.soon("the text is there", fmt.Sprintf("document.getElementById('config-text').textContent === %q", h.text))
	b.click("#reload-now")
	b.soon("it asks", fmt.Sprintf("document.querySelector(%q)?.innerText === 'Ends or drains 412 flows.'", question+" .effect"))
	b.fill(question+" .typed input", "412")
	b.click(yes)
	b.soon("it is done", "document.getElementById('said').innerText === 'Reloaded: 2 changes.' && document.getElementById('diff').innerText === 'The file says what runs.'")
	s.now(func() {
		if h.reloads != 1 {
			t.Errorf("%d reloads", h.reloads)
		}
		h.bad = failingHouse().status.Config.Failed.Errors
	})
	b.mayFail()
	b.click("#look-again")
	b.soon("the file's mistakes are told", "document.querySelectorAll('#diff-list li').length === 2 && document.getElementById('diff').dataset.is === 'bad' && document.getElementById('diff-list').innerText.includes('/etc/penstock/penstock.yaml:14:7')")
}

func drains(t *testing.T, in context.Context) {
	h := busyHouse()
	s := serve(t, h)
	b := show(t, in, s, full)
	b.click("#drain-now")
	b.soon("it asks", fmt.Sprintf("/^Refuses all new clients; \\d+ flows are left to end\\.$/.test(document.querySelector(%q)?.innerText) && document.querySelector(%q).disabled", question+" .effect", yes))
	b.fill(question+" .typed input", "drain")
	b.key(kb.Enter)
	b.soon("the daemon drains", "document.getElementById('draining').checkVisibility() && document.title === '▼ draining – Penstock'")
}

// Who changed what is in the events, and can be asked for alone.
func tellsWho(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	s.events.Add(api.Event{Level: "warn", Kind: "health", Subject: "api/api-3", Message: "is down"})
	b := show(t, in, s, full)
	b.soon("the event is there", "document.querySelectorAll('#event-list li').length === 1")
	b.click("#group-list tbody tr:first-child .act button")
	b.choose("drain", "", "Drain api-1", false)
	b.click(yes)
	b.soon("the change is told with its actor", "/api\\/api-1\\s+was set to drained, weight 10 by full token, 127\\.0\\.0\\.1:\\d+/.test(document.querySelector('#event-list li')?.innerText)")
	b.focus("#event-choice")
	b.key("w") // who changed what
	b.soon("only the change is left", "document.getElementById('event-choice').value === 'people' && document.querySelectorAll('#event-list li').length === 1 && !document.getElementById('event-list').innerText.includes('is down')")
}
