package dashboard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// weigh types the weight of a part into the question about weights.
func (b *tab) weigh(part, weight string) {
	b.t.Helper()
	field := fmt.Sprintf(question+" [name=%q]", part)
	b.focus(field)
	eval[chromedp.Void](b, fmt.Sprintf("document.querySelector(%q).select()", field))
	b.fill(field, weight)
}

// The parts of a route are shown with their shares; weights are changed, and restored, after a question that says what becomes of the clients.
func changesWeights(t *testing.T, in context.Context) {
	h := splitHouse()
	h.moves = false
	s := serve(t, h)
	b := show(t, in, s, full)
	const route = "#split-list article:nth-child(2) "
	line := func(n int, want ...string) {
		t.Helper()
		for _, w := range want {
			b.soon(fmt.Sprintf("part %d has %q", n, w), fmt.Sprintf("document.querySelector(%q)?.innerText.replace(/\\s+/g, ' ').includes(%q)", fmt.Sprintf(route+"tbody tr:nth-child(%d)", n), w))
		}
	}
	line(1, "blue 2 of 2 available", "90 % 90 file 95")
	line(2, "green", "10 % 10 file 5")
	line(3, "refuse refuses its clients", "0 % 0")
	if got := b.text(route + "header"); !strings.HasPrefix(got, "shop / default") || !strings.Contains(got, "weights of the fleet") {
		t.Errorf("the panel is called %q", got)
	}
	b.soon("the difference is told beside the configuration", "document.getElementById('differs').innerText === 'Weights differ from the file:' && "+
		"document.querySelector('#member-changes li')?.innerText.startsWith('shop / default weights: blue 90 instead of 95, green 10 instead of 5, in the whole fleet')")

	// New flows are counted from the first look on.
	s.now(func() {
		parts := slices.Clone(h.listeners[2].Routes[1].Parts)
		parts[0].Begun += 7
		parts[1].Begun++
		h.listeners[2].Routes[1].Parts = parts
	})
	line(1, "87.5 % 7 of 8")
	line(2, "12.5 % 1 of 8")

	b.click(route + "header button")
	effect := func(what, want string, off bool) {
		t.Helper()
		b.soon(what, fmt.Sprintf("document.querySelector(%q)?.innerText.trim() === %q && document.querySelector(%q).disabled === %t", question+" .effect", want, yes, off))
	}
	effect("nothing has changed yet", "", true)
	b.weigh("blue", "0")
	b.weigh("green", "0")
	effect("somebody must have the clients", "One part needs a weight of at least 1.", true)
	b.weigh("green", "3")
	b.weigh("refuse", "1")
	effect("refusing is told", "Refuses 25 % of all new clients.", true)
	b.weigh("refuse", "0")
	effect("nobody is refused", "", false)
	if got := b.text(question + " .weights"); !strings.Contains(strings.Join(strings.Fields(got), " "), "100 %, was 10") {
		t.Errorf("the shares are %q", got)
	}
	b.click(yes)
	b.soon("it is told", "document.getElementById('said').innerText === 'shop / default: blue 0 %, green 100 %, refuse 0 %, in the whole fleet.'")
	line(1, "0 % 0 file 95")
	line(2, "100 % 3 file 5")

	// A part whose group has no member that takes flows.
	s.now(func() {
		for i := range h.groups {
			if h.groups[i].Name == "blue" {
				h.groups[i].Members = slices.Clone(h.groups[i].Members)
				for j := range h.groups[i].Members {
					h.groups[i].Members[j].State, h.groups[i].Members[j].Available = "down", false
				}
			}
		}
	})
	line(1, "no member is available")
	b.click(route + "header button")
	b.weigh("blue", "1")
	effect("who has no members is told", "No member of blue is available: its new flows will be refused.", true)
	b.fill(question+" .typed input", "blue")
	effect("it was typed", "No member of blue is available: its new flows will be refused.", false)
	b.click(question + " .icon")

	b.click("#member-changes li button")
	b.click(yes)
	line(2, "5 % 5")
	b.soon("nothing differs", "!document.getElementById('members-differ').checkVisibility()")

	// Another operator changes weights while the question is open: what it shows is what there is afterwards.
	b.click(route + "header button")
	s.now(func() {
		parts := slices.Clone(h.listeners[2].Routes[1].Parts)
		parts[0].Weight, parts[1].Weight = 0, 100
		h.listeners[2].Routes[1].Parts = parts
	})
	line(2, "100 % 100")
	b.weigh("green", "15")
	b.click(yes)
	line(1, "86.3636 % 95")
	line(2, "13.6364 % 15 file 5")
	s.now(func() {
		if want := []string{"shop/default map[blue:0 green:3 refuse:0]", "shop/default filemap[]", "shop/default map[blue:95 green:15 refuse:0]"}; !slices.Equal(h.changes, want) {
			t.Errorf("changes are %q, want %q", h.changes, want)
		}
	})
}
