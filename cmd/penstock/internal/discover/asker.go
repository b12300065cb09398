package discover

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// An asker asks one of a registry's servers, and another one after a failure.
type asker struct {
	sources  *Sources
	registry spec.Registry
	report   func(error)    // is called with each failure
	client   *remote.Client // nil: none yet
	server   int            // which of the client's servers is asked
	failed   remote.Backoff
}

// connect makes the client, unless there is one.
func (a *asker) connect() error {
	if a.client != nil {
		return nil
	}
	cfg := remote.Of(a.registry)
	if a.sources.opt.dial != nil {
		cfg.DialContext = a.sources.opt.dial
	}
	client, err := remote.New(cfg)
	if err != nil {
		return err
	}
	a.client = client
	a.server = rand.N(len(client.Servers()))
	return nil
}

func (a *asker) close() {
	if a.client != nil {
		a.client.Close()
	}
}

// request returns a request to the server that is asked now, and the token that it is to be sent with.
func (a *asker) request(ctx context.Context, path string, query url.Values) (r *http.Request, token string, err error) {
	u := *a.client.Servers()[a.server]
	u.Path, u.RawQuery = path, query.Encode()
	if r, err = http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil); err != nil {
		return nil, "", err
	}
	r.Header.Set("User-Agent", "penstock")
	token, err = a.client.Token()
	return r, token, err
}

// handle reports an error, and returns how long to wait before the next attempt.
func (a *asker) handle(err error) time.Duration {
	var denied *deniedError
	if errors.As(err, &denied) {
		if token, err := a.client.Token(); err == nil && token != denied.token {
			return 0 // it has been replaced meanwhile
		}
	}
	a.report(err)
	var status *statusError
	wait := a.failed.Next()
	if errors.As(err, &status) {
		wait = max(wait, status.retryAfter)
	}
	if a.client != nil {
		a.server = (a.server + 1) % len(a.client.Servers())
		a.client.Close() // a name may lead to another server now
	}
	return wait
}
