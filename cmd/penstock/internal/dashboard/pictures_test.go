package dashboard_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
)

var pictures = flag.String("pictures", "", "a folder: take pictures of the page there, to be looked at")

// TestPictures takes the page in all its states, at the width of a desk and of a
// phone, light and dark.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("pictures are taken with -pictures FOLDER")
	}
	// A browser each: the tabs of one share the token.
	in := map[string]context.Context{"light": testbrowser.Start(t), "dark": testbrowser.Start(t)}
	for name, h := range map[string]*house{"empty": emptyHouse(), "busy": busyHouse(), "failing": failingHouse(), "split": splitHouse()} {
		s := serve(t, h)
		for i, message := range []string{"is up: the check succeeds", "weight 10 became 5", "4 connects in a row failed"} {
			if name != "empty" {
				s.events.Add(api.Event{Level: []string{"info", "info", "warn"}[i], Kind: []string{"health", "member", "health"}[i], Subject: "api/api-3", Message: message})
			}
		}
		at := serveHistory(t, s)
		for _, look := range []string{"light", "dark"} {
			b := open(t, in[look], at)
			b.mayFail()
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look}}})
			b.do(chromedp.EmulateViewport(1280, 800))
			if name == "failing" && look == "light" {
				b.enter("#token input", "a wrong one")
				b.soon("it is refused", "document.getElementById('wrong-token').checkVisibility()")
				b.take("token-light-1280")
			}
			b.enter("#token input", map[string]string{"light": full, "dark": readOnly}[look])
			b.live()
			if name == "busy" {
				b.soon("rates are known", "document.querySelector('#map-picture path:not([data-is=idle]):not([data-is=odd])')")
			}
			b.soon("lists are there", "document.getElementById('flows-count').innerText && document.getElementById('no-groups').checkVisibility() === !document.querySelector('#group-list article')")
			if name == "failing" && look == "dark" {
				s.stop()
				b.soon("the server is gone", "document.getElementById('gone').checkVisibility()")
			}
			for _, width := range []int64{1280, 320} {
				b.do(chromedp.EmulateViewport(width, map[int64]int64{1280: 800, 320: 640}[width]))
				lapse(1500 * time.Millisecond) // the charts follow the width, and more samples come
				if out := b.overflowing(); len(out) > 0 {
					t.Errorf("%s at %d: beyond the edge are %q", name, width, out)
				}
				eval[chromedp.Void](b, "document.activeElement.blur(), scrollTo(0, 0)")
				b.take(fmt.Sprintf("%s-%s-%d", name, look, width))
				if name == "split" && look == "light" {
					b.click("#split-list article:nth-child(2) button.full")
					b.fill(question+" [name=green]", "0")
					b.take(fmt.Sprintf("weights-%s-%d", look, width))
					b.click("dialog.confirm[open] .icon")
				}
				if name != "busy" {
					continue
				}
				b.click(rows + ":nth-child(2) .id")
				b.soon("the detail is there", "document.querySelector('dialog.detail')?.open")
				b.take(fmt.Sprintf("detail-%s-%d", look, width))
				if look == "light" {
					b.click("dialog.detail .danger")
					b.take(fmt.Sprintf("kill-%s-%d", look, width))
					b.click("dialog.confirm[open] button[type=button]:not(.icon)")
				}
				b.click("dialog.detail .icon")
				if look == "light" {
					b.click("#group-list tbody tr:nth-child(2) .act button")
					b.take(fmt.Sprintf("member-%s-%d", look, width))
					b.click("dialog.confirm[open] .icon")
				}
			}
		}
	}
}

// take writes the whole page, or what can be seen if a dialog is open.
func (b *tab) take(name string) {
	b.t.Helper()
	b.do(chromedp.Sleep(200 * time.Millisecond))
	action := chromedp.FullScreenshot(100)
	if eval[bool](b, "document.querySelector('dialog[open]') !== null") {
		action = chromedp.CaptureScreenshot()
	}
	png, err := chromedp.Run(b.ctx, action)
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// serveHistory serves the same, but its stream begins with the last five
// minutes: a page that was open for so long would look like that.
func serveHistory(t *testing.T, s *site) string {
	to, err := url.Parse(s.origin())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/stream" && r.Header.Get("Authorization") != "" {
			now := time.Now()
			for at := now.Add(-5 * time.Minute); at.Before(now); at = at.Add(time.Second) {
				sample := s.Status().Sample
				if s.moves {
					sample.Totals, sample.Loops, sample.Latency = flowing(at.Sub(s.began).Seconds()), turning(at.Sub(s.began).Seconds()), latencyAt(at.Sub(s.began).Seconds())
					sample.Totals.Flows += int64(len(s.flows))
				}
				sample.Time = at
				sample.Loops = append([]api.Loop{}, sample.Loops...)
				sample.Paths = append([]api.PathCount{}, sample.Paths...)
				sample.Refusals = append([]api.Refusal{}, sample.Refusals...)
				b, err := json.Marshal(sample)
				if err != nil {
					t.Error(err)
				}
				fmt.Fprintf(w, "data: %s\n\n", b)
			}
			w.(http.Flusher).Flush()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
