package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
	"github.com/penstock/penstock/internal/testnet"
)

// Many tabs share one stream, so that none of them waits for a connection: a browser has six
// to one server. The token is asked for once, and forgotten in all.
func TestManyTabs(t *testing.T) {
	ofThePage(t)
	in := testbrowser.Start(t)
	s := serve(t, busyHouse())
	to, err := url.Parse(s.origin())
	if err != nil {
		t.Fatal(err)
	}
	var streams, begun atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/stream" && r.Header.Get("Authorization") != "" {
			begun.Add(1)
			streams.Add(1)
			defer streams.Add(-1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	tabs := make([]*tab, 8)
	for i := range tabs {
		tabs[i] = open(t, in, front.URL)
		if i == 0 {
			tabs[i].enter("#token input", full)
		}
		tabs[i].live()
		tabs[i].soon("flows are there", "document.querySelectorAll('"+rows+"').length === 50")
	}
	if n, all := streams.Load(), begun.Load(); n != 1 || all != 1 {
		t.Errorf("%d tabs have %d streams, and had %d", len(tabs), n, all)
	}
	// The tab that began it goes; the others go on.
	tabs[0].do(chromedp.Navigate("about:blank"))
	for _, b := range tabs[1:] {
		before := b.text("#total-begun")
		b.soon("samples come", fmt.Sprintf("document.getElementById('total-begun').innerText !== %q", before))
	}
	if n := streams.Load(); n != 1 {
		t.Errorf("%d streams after the first tab has gone", n)
	}
	tabs[1].click("#forget")
	for _, b := range tabs[1:] {
		b.soon("it asks again", "document.getElementById('token')?.open && sessionStorage.length === 0")
	}
}

// Where there is no shared worker, a tab has a stream of its own.
func TestWithoutSharedWorker(t *testing.T) {
	in := testbrowser.Start(t)
	s := serve(t, busyHouse())
	b := open(t, in, s.origin())
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: "delete window.SharedWorker"})
	b.do(chromedp.Navigate(s.origin() + "/"))
	b.enter("#token input", full)
	b.live()
	if eval[bool](b, "'SharedWorker' in window") {
		t.Error("there is a shared worker")
	}
	b.mayFail()
	s.stop()
	b.soon("the page says so", "document.getElementById('gone').checkVisibility()")
	if got := b.text("#gone"); !strings.Contains(got, "The next attempt is in") {
		t.Errorf("it says %q", got)
	}
}

// On a phone nothing is wider than the screen, the problems come first, and what can be touched is big enough.
func TestPhone(t *testing.T) {
	ofThePage(t)
	if testnet.RaceEnabled {
		t.Skip("examines the layout in the browser: the race detector sees nothing of that")
	}
	in := testbrowser.Start(t)
	for name, h := range map[string]*house{"empty": emptyHouse(), "busy": busyHouse(), "failing": failingHouse(), "crowded": crowdedHouse()} {
		b := show(t, in, serve(t, h), full)
		b.do(chromedp.EmulateViewport(320, 640))
		b.soon("lists are there", "document.getElementById('flows-count').innerText && document.getElementById('diff').innerText && document.getElementById('no-groups').checkVisibility() === !document.querySelector('#group-list article')")
		b.soon("the charts have followed", "document.documentElement.scrollWidth === 320 && [...document.querySelectorAll('#charts canvas')].every(c => c.getBoundingClientRect().right <= 320)")
		if out := b.overflowing(); len(out) > 0 {
			t.Errorf("%s: beyond the edge are %q", name, out)
		}
		if !eval[bool](b, "[...document.querySelectorAll('#problem-list li')].every(li => li.getBoundingClientRect().top < document.querySelector('.totals').getBoundingClientRect().top)") {
			t.Errorf("%s: the problems are not first", name)
		}
		if name == "failing" && eval[float64](b, "document.querySelector('#problem-list li').getBoundingClientRect().top") > 480 {
			t.Errorf("%s: the first problem is below the fold", name)
		}
		small := eval[[]string](b, `[...document.querySelectorAll('a, button, input, select, summary, [tabindex="0"]')].filter(e => e.checkVisibility() && !e.classList.contains('skip')).map(e => [e, e.getBoundingClientRect()])
			.filter(([, r]) => r.width && (r.width < 24 || r.height < 24)).map(([e, r]) => e.outerHTML.slice(0, 120) + ' ' + Math.round(r.width) + 'x' + Math.round(r.height)).slice(0, 10)`)
		if len(small) > 0 {
			t.Errorf("%s: smaller than 24 px are %q", name, small)
		}
	}
}
