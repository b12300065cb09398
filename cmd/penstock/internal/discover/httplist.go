package discover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

const (
	maxHTTPAnswer  = 1 << 25 // bytes; it is read element by element
	maxHTTPElement = 1 << 22
	maxHTTPLists   = 1 << 16 // elements

	httpLabel = "penstock_" // labels of Prometheus have no dots
)

// An httpSource finds members in a list that an HTTP server has, in the format of Prometheus' http_sd:
//
//	[{"targets": ["10.0.0.7:80"], "labels": {"penstock_weight": "3", "rack": "a"}}]
type httpSource struct {
	sources *Sources
	what    spec.Discover
}

func (s httpSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	s.sources.watch(ctx, s.what, update, s.follow)
}

func (s httpSource) follow(ctx context.Context, f *feed) {
	w := &httpWatch{asker: asker{sources: s.sources, registry: s.what.Registry, report: f.failed}, what: s.what, feed: f}
	defer w.close()
	for ctx.Err() == nil {
		err := w.round(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			w.failed.Working()
			remote.Sleep(ctx, s.what.Every-rand.N(s.what.Every/10+1))
		default:
			w.tag = ""
			remote.Sleep(ctx, w.handle(err))
		}
	}
}

// An httpWatch is an httpSource that is watched.
type httpWatch struct {
	asker
	what spec.Discover
	feed *feed
	tag  string // ETag of the last list; empty: none
}

// round asks for the list, and tells it.
func (w *httpWatch) round(ctx context.Context) error {
	if err := w.connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errSlow)
	defer cancel()
	at, err := url.ParseRequestURI(w.what.Key)
	if err != nil {
		return err
	}
	request, token, err := w.request(ctx, at.Path, at.Query())
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-Prometheus-Refresh-Interval-Seconds", strconv.FormatFloat(w.what.Every.Seconds(), 'f', -1, 64))
	if w.tag != "" {
		request.Header.Set("If-None-Match", w.tag)
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotModified && w.tag != "" {
		w.feed.connected()
		return nil
	}
	if err := checkAnswer(answer, token); err != nil {
		return err
	}
	lists, err := readElements[httpList](&remote.BoundedReader{R: answer.Body, Left: maxHTTPAnswer}, maxHTTPElement, maxHTTPLists)
	if err != nil {
		return fmt.Errorf("list %s: %w", w.what.Key, causeOf(ctx, err))
	}
	if err := tellLists(w.feed, lists, w.what); err != nil {
		return err
	}
	w.feed.connected()
	w.tag = answer.Header.Get("ETag")
	return nil
}

// An httpList is an element of a list: targets that have the same labels.
type httpList struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// tellLists tells the members that lists make. Of a target that is listed several times, the first one counts.
func tellLists(f *feed, lists []httpList, d spec.Discover) error {
	told := map[string]bool{}
	return f.change(true, func(e *edits) {
		for _, l := range lists {
			labels := make(map[string]any, len(l.Labels))
			for name, value := range l.Labels {
				labels[name] = value
			}
			var t upstream.Target
			wrong := readLabels(&t, func(name string) (string, bool) {
				value, ok := l.Labels[httpLabel+strings.ReplaceAll(name, "-", "_")] // the names of labels in Prometheus have no -
				return value, ok
			})
			t.Metadata = metadata(labels)
			for _, at := range l.Targets {
				problem := wrong
				if problem == "" {
					t.Addr, problem = parseAddress(at, d.Network)
				}
				if problem != "" {
					e.reject("target "+text(at, maxName), problem)
					continue
				}
				if key := t.Addr.AddrPort.String(); !told[key] {
					told[key] = true
					e.set(key, t)
				}
			}
		}
	})
}
