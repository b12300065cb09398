package dashboard_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
)

func TestLists(t *testing.T) {
	ofThePage(t)
	in := testbrowser.Start(t)
	for _, test := range []struct {
		name string
		do   func(*testing.T, context.Context)
	}{
		{"thousand members", findsMembers}, {"filter in the address", keepsFilter}, {"ended", explainsEnds},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.do(t, in)
		})
	}
}

// A group with a thousand members can be searched, sorted and reduced to its problems.
func findsMembers(t *testing.T, in context.Context) {
	s := serve(t, crowdedHouse())
	b := show(t, in, s, full)
	const (
		group = "#group-list article:first-child "
		lines = group + "tbody tr"
	)
	is := func(what string, first string, n int) {
		t.Helper()
		b.soon(what, fmt.Sprintf("document.querySelectorAll(%q).length === %d && document.querySelector(%q).innerText.startsWith(%q)", lines, n, lines, first))
	}
	is("problems are first, and not all are shown", "api-40\n", 50)
	b.click(group + ".more")
	is("more are shown", "api-40\n", 250)
	b.fill(group+"[type=search]", "API-77")
	is("it is found", "api-77\n", 11) // and api-770 to api-779
	if got := b.text(group + ".tools [role=status]"); got != "11 of 1,000 members" {
		t.Errorf("found are %q", got)
	}
	b.fill(group+"[type=search]", "9")
	is("one is left", "api-779\n", 1)
	b.soon("the search is empty", fmt.Sprintf("(() => { const e = document.querySelector(%q); e.value = ''; e.dispatchEvent(new Event('input')); return true })()", group+"[type=search]"))
	b.focus(group + "[type=checkbox]")
	b.key(" ")
	is("only problems are left", "api-40\n", 25)
	if got := b.text(group + ".check-box"); got != "Only problems (25)" {
		t.Errorf("the choice is %q", got)
	}
	if slices.ContainsFunc(b.texts(lines+" .state"), func(s string) bool { return s != "down" }) {
		t.Error("a member without a problem is among them")
	}
	b.key(" ")
	b.click(group + "thead th:nth-child(4) .sort")
	is("the one with most flows is first", "api-858\n", 250) // 857*7 mod 1000 = 999
	if got := eval[string](b, fmt.Sprintf("document.querySelector(%q).getAttribute('aria-sort')", group+"thead th:nth-child(4)")); got != "other" {
		t.Errorf("the column is sorted %q", got)
	}
}

// The filter is in the address: a link can be kept and sent on, and back goes back.
func keepsFilter(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := open(t, in, s.origin(), "/?listener=dns&min_age=1s&sort=age#flows")
	b.enter("#token input", full)
	b.live()
	oldest := s.biggest(api.Filter{Listener: "dns"})
	slices.SortFunc(oldest, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(b, a)) }) // ids are seconds
	b.want(oldest)
	if got := eval[[]string](b, "['listener', 'min_age', 'sort'].map(n => document.getElementById('filter').elements[n].value)"); !slices.Equal(got, []string{"dns", "1s", "age"}) {
		t.Errorf("the filter is %q", got)
	}
	b.click("#filter [type=reset]")
	b.want(s.biggest(api.Filter{})[:50])
	b.soon("the address is bare", "location.search === '' && location.hash === '#flows'")
	b.enter("#filter [name=group]", "resolvers")
	b.soon("the address has it", "location.search === '?group=resolvers'")
	b.want(s.biggest(api.Filter{Group: "resolvers"}))
	b.click("#listener-list tbody tr:nth-child(2) td a")
	b.want(s.biggest(api.Filter{Listener: "tls", Route: "api"})[:50])
	b.soon("the address has that", "location.search === '?listener=tls&route=api'")
	b.soon("back is taken", "history.back() ?? true")
	b.want(s.biggest(api.Filter{Group: "resolvers"}))
	b.soon("the address is the one before", "location.search === '?group=resolvers' && document.querySelector('#filter [name=group]').value === 'resolvers'")
	// Ids are those of the API and of the commands.
	if got := eval[string](b, "document.querySelector('#flow-list .id').innerText"); got != s.biggest(api.Filter{Group: "resolvers"})[0] {
		t.Errorf("the id is %q", got)
	}
}

// Flows that ended are listed with cause, reason and error; problems alone, and each cause alone.
func explainsEnds(t *testing.T, in context.Context) {
	s := serve(t, busyHouse())
	b := show(t, in, s, full)
	const lines = "#ended-list tbody tr"
	b.soon("they are there", fmt.Sprintf("document.querySelectorAll(%q).length === 25 && document.getElementById('more-ended').innerText === 'Show all 40'", lines))
	b.focus("#ended-filter [name=problems]")
	b.key(" ")
	b.soon("problems are alone", fmt.Sprintf("document.querySelectorAll(%q).length === 8 && location.search === '?ended=problems'", lines))
	first := b.text(lines)
	for _, want := range []string{"connect-timeout", "connect: connection timed out", "3 attempts", "api / api-2", "\n4995\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in %q", want, first)
		}
	}
	if got := eval[[]string](b, "[...document.querySelector('#ended-filter [name=cause]').options].map(o => o.text)"); !slices.Equal(got, []string{"any", "connect-timeout (4)", "refused (4)", "no-member (4)"}) {
		t.Errorf("causes are %q", got)
	}
	b.focus("#ended-filter [name=cause]")
	b.key("n")
	b.soon("one reason is left", fmt.Sprintf("document.querySelectorAll(%q).length === 4 && [...document.querySelectorAll(%q)].every(tr => tr.innerText.includes('refused: no-member'))", lines, lines))
}
