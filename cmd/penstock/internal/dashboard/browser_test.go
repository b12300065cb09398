package dashboard_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// patience bounds every wait for something that is about to happen.
const patience = testnet.Patience

// ofThePage skips a test under the race detector that looks at what the page shows: what it asks of the Go code, TestPage, TestActions
// and TestDaemon ask, too, and a browser takes minutes there.
func ofThePage(t *testing.T) {
	t.Helper()
	if testnet.RaceEnabled {
		t.Skip("looks at the page, which the race detector does not see")
	}
}

// tab is a page of the browser, and what went wrong in it.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu     sync.Mutex
	wrong  []string
	absent bool // answers may be no success
}

// open loads the page at origin, or a part of it, in a tab of its own, whose session is its own, too. What the
// console says, what the policy of the page forbids, and every request to another
// origin fails the test.
func open(t *testing.T, in context.Context, origin string, at ...string) *tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(in)
	b := &tab{t: t, ctx: ctx, origin: origin}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Log("the tab was closed with", err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, w := range b.wrong {
			t.Error("in the page: " + w)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	// Tabs are side by side, and each has the focus.
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.do(chromedp.Navigate(origin + append(at, "/")[0]))
	return b
}

// hear keeps what should not be.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			b.wrong = append(b.wrong, fmt.Sprintf("console.%s: %s", e.Type, arg.Value))
		}
	case *log.EventEntryAdded:
		// Chromium logs each answer that is no success. One without a token is among them.
		if e.Entry.Source != "network" || !b.absent && !strings.Contains(e.Entry.Text, "401") {
			b.wrong = append(b.wrong, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme+"://"+u.Host != b.origin {
			b.wrong = append(b.wrong, "a request to "+e.Request.URL)
		}
	}
}

// do does what a person does.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// call sends a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// eval is what a JavaScript expression gives.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := evaluate[T](b, expression)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func evaluate[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// soon waits for an expression to be true.
func (b *tab) soon(what, expression string) {
	b.t.Helper()
	var err error
	if !testwait.For(func() (is bool) {
		is, err = evaluate[bool](b, "Boolean("+expression+")")
		return is
	}) {
		b.t.Fatalf("not within %v: %s: %v\n%.2000s", patience, what, err, b.text("body")) // err: the page was being loaded anew
	}
}

// hasIcon waits until the tab's icon is one of the page's, which is in the page: no daemon is asked for it.
func (b *tab) hasIcon(name string) {
	b.t.Helper()
	text, err := os.ReadFile("page/" + name)
	if err != nil {
		b.t.Fatal(err)
	}
	b.soon("the icon is "+name, fmt.Sprintf("decodeURIComponent(document.querySelector('link[rel=icon]').getAttribute('href')) === %q", "data:image/svg+xml,"+string(text)))
}

// text is what can be read of an element; empty if there is none.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// texts are the texts of all elements that a selector chooses.
func (b *tab) texts(selector string) []string {
	b.t.Helper()
	return eval[[]string](b, fmt.Sprintf("[...document.querySelectorAll(%q)].map(e => e.innerText.trim())", selector))
}

// focus waits for an element that can be seen, and goes there.
func (b *tab) focus(selector string) {
	b.t.Helper()
	b.soon(selector+" is there", fmt.Sprintf("document.querySelector(%q)?.checkVisibility()", selector))
	eval[chromedp.Void](b, fmt.Sprintf("document.querySelector(%q).focus()", selector))
}

// key presses one.
func (b *tab) key(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key))
}

// click presses a button, with the keyboard.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.focus(selector)
	b.key(kb.Enter)
}

// enter types a line into a field.
func (b *tab) enter(selector, line string) {
	b.t.Helper()
	b.focus(selector)
	call(b, input.InsertText, input.InsertTextParams{Text: line})
	b.key(kb.Enter)
}

// mayFail says that answers may be no success from now on.
func (b *tab) mayFail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.absent = true
}

// overflowing names the elements that make the page wider than the window.
func (b *tab) overflowing() []string {
	b.t.Helper()
	return eval[[]string](b, `document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
		[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && e.checkVisibility())
			.map((e) => e.tagName + '#' + e.id + '.' + e.className + ' in ' + e.parentElement.tagName + '#' + e.parentElement.id + ': ' + Math.round(e.getBoundingClientRect().right)).slice(0, 12)`)
}
