package dashboard_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/cmd/penstock/internal/testbrowser"
)

// axe-core is MPL-2.0 and half a megabyte: it is neither in the repository nor in the binary.
const (
	axeVersion   = "4.14.1"
	axeIntegrity = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

// axeScript returns axe-core, from the user's cache or by npm, and skips the test where neither is to be had.
func axeScript(t *testing.T) string {
	t.Helper()
	name := "axe-core-" + axeVersion + ".tgz"
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "penstock-test")
	archive, err := os.ReadFile(filepath.Join(cache, name))
	if err != nil {
		npm, err := exec.LookPath("npm")
		if err != nil {
			t.Skip("neither axe-core nor npm is there: accessibility is not checked (Debian: apt install npm)")
		}
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "axe-core@"+axeVersion)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("axe-core cannot be fetched, so accessibility is not checked: %v\n%s", err, out)
		}
		if archive, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(cache, 0o755), os.WriteFile(filepath.Join(cache, name), archive, 0o644)); err != nil {
			t.Log("axe-core is not kept:", err)
		}
	}
	if sum := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(sum[:]) != axeIntegrity {
		t.Fatalf("%s is not what was pinned; remove %s", name, cache)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(unzipped); ; {
		head, err := files.Next()
		if err != nil {
			t.Fatal("axe.min.js:", err)
		}
		if head.Name == "package/axe.min.js" {
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
}

// finding is one rule of axe that the page breaks.
type finding struct {
	ID     string `json:"id"`
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// The page has no serious finding of axe: light and dark, wide and on a phone, in good and in
// bad times, and with each dialog open.
func TestAccessibility(t *testing.T) {
	ofThePage(t)
	script := axeScript(t)
	in := testbrowser.Start(t)
	for name, h := range map[string]*house{"busy": busyHouse(), "failing": failingHouse(), "empty": emptyHouse(), "split": splitHouse(), "crowded": crowdedHouse()} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, h)
			b := open(t, in, s.origin())
			eval[chromedp.Void](b, script+"; void 0")
			// inside looks at a part of the page only: what is behind a dialog has been looked at before.
			inside := func(what, part string) {
				t.Helper()
				eval[chromedp.Void](b, `scrollTo(0, 0); window.found = null; axe.run('`+part+`', {resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}).then(r => { window.found = JSON.stringify(r.violations) }); void 0`)
				b.soon("axe has run", "window.found")
				text := eval[string](b, "window.found")
				var found []finding
				if err := json.Unmarshal([]byte(text), &found); err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					if f.Impact != "serious" && f.Impact != "critical" {
						t.Logf("%s: %s (%s): %s", what, f.ID, f.Impact, f.Help)
						continue
					}
					for _, n := range f.Nodes[:min(3, len(f.Nodes))] {
						t.Errorf("%s: %s (%s), %d times: %s\n%.300s\n%.600s", what, f.ID, f.Impact, len(f.Nodes), f.Help, n.HTML, n.Summary)
					}
				}
			}
			check := func(what string) { t.Helper(); inside(what, "html") }
			b.soon("the token is asked for", "document.getElementById('token').open")
			if name == "busy" { // all look the same then
				check("token")
			}
			b.enter("#token input", full)
			b.live()
			b.soon("lists are there", "document.getElementById('flows-count').innerText && document.getElementById('diff').innerText && document.getElementById('no-groups').checkVisibility() === !document.querySelector('#group-list article')")
			for _, look := range []string{"light", "dark"} {
				call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look}}})
				for _, width := range []int64{1280, 320} {
					if name != "busy" && (look == "light") != (width == 1280) {
						continue // the others have looked at that
					}
					b.do(chromedp.EmulateViewport(width, 800))
					check(fmt.Sprint(look, " ", width))
					if name == "split" {
						b.click("#split-list article:nth-child(2) header button")
						b.weigh("refuse", "90")
						inside(fmt.Sprint("weights ", look, " ", width), question)
						b.click(question + " .icon")
					}
					if name != "busy" {
						continue
					}
					b.click(rows + " .id")
					b.soon("the detail is open", "document.querySelector('dialog.detail')?.open")
					inside(fmt.Sprint("detail ", look, " ", width), "dialog.detail")
					b.click("dialog.detail .danger")
					b.soon("it asks", "document.querySelector('"+question+"')")
					inside(fmt.Sprint("kill ", look, " ", width), question)
					b.click(question + " .icon")
					b.click("dialog.detail .icon")
					b.click("#group-list tbody tr:nth-child(2) .act button")
					b.choose("disable", "Ends 321 flows.", "Disable api-2, end 321 flows", true)
					inside(fmt.Sprint("member ", look, " ", width), question)
					b.click(question + " .icon")
				}
			}
			if name == "failing" {
				b.mayFail()
				s.stop()
				b.soon("the daemon is gone", "document.getElementById('gone').checkVisibility()")
				check("gone")
			}
		})
	}
}
