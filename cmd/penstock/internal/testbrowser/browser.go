// Package testbrowser runs Chromium for tests.
package testbrowser

import (
	"context"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/internal/testwait"
)

// Start starts a headless Chromium for one test, or skips it.
func Start(t *testing.T, options ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium is installed (Debian: apt install chromium)")
	}
	options = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(testwait.Patience)), options...)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, quit := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Log("Chromium ended with", err)
		}
		quit()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal("Chromium does not start:", err)
	}
	return ctx
}
