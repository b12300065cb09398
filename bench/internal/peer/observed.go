//go:build linux

package peer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
)

// observed returns penstock run without requests, with constant requests, and also with an access
// log. The differences between them are the cost of observability.
func observed(bin string) []Peer {
	one := func(name, note string, watched bool, more string) Peer {
		p := penstockRun(name, note, bin, func(s Setup) string {
			text := fmt.Sprintf(`engine: {loops: %d}
groups: {upstream: {members: ["tcp://%s"]}}
listeners: {l: {listen: "tcp://%s", to: upstream}}
`, s.Loops, s.Upstream, s.Listen)
			if watched {
				text += fmt.Sprintf("admin: {listen: \"unix://%s\"}\n", adminSocket(s))
			}
			if more != "" {
				text += fmt.Sprintf(more, s.Dir)
			}
			return text
		})
		if watched {
			p.Watch = watch
		}
		return p
	}
	const note = "penstock run: one scrape per second and an open dashboard"
	return []Peer{
		one("penstock-run", "penstock run: no requests", false, ""),
		one("penstock-watched", note, true, ""),
		one("penstock-logged", note+", access log in JSON", true, "access-log: {to: \"%s/access.log\"}\n"),
	}
}

func adminSocket(s Setup) string { return filepath.Join(s.Dir, "admin.sock") }

// watch makes the requests of a scraper and of the dashboard's page until ctx ends: the page keeps
// /v1/stream open and fetches lists at most every two seconds.
func watch(ctx context.Context, s Setup) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := http.Client{Transport: (&admin.Client{Socket: adminSocket(s)}).Transport()}
	defer client.CloseIdleConnections()
	ask := func(path string) {
		if err := read(ctx, &client, path); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("%s: %w", path, err))
		}
	}
	again := func(every time.Duration, paths ...string) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, path := range paths {
				ask(path)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	// The listeners for clients are bound before the admin socket.
	for end := time.Now().Add(30 * time.Second); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if err := read(ctx, &client, "/healthz"); err == nil {
			break
		} else if time.Now().After(end) {
			return err
		}
	}
	var all sync.WaitGroup
	all.Go(func() { again(time.Second, "/metrics") })
	all.Go(func() { again(2*time.Second, "/v1/listeners", "/v1/groups", "/v1/flows?sort=bytes&limit=50") })
	all.Go(func() { ask("/v1/stream") })
	all.Wait()
	if err := context.Cause(ctx); err != context.Canceled {
		return err
	}
	return nil
}

// read reads an answer to its end.
func read(ctx context.Context, client *http.Client, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("unexpected status %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
