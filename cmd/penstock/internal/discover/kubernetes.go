package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// Bounds of what an API server may send.
const (
	kubePage      = 25      // EndpointSlices per page of a list: each may have 1,000 endpoints, but has 100 by default
	maxKubePages  = 1000    // of a list
	maxKubeList   = 1 << 27 // bytes of a page; it is read slice by slice
	maxKubeObject = 4 << 20 // bytes of an EndpointSlice: etcd takes 1.5 MB
	maxEndpoints  = 1 << 16 // of a service
	maxSlices     = 1 << 12 // of a service

	listTimeout   = time.Minute
	answerTimeout = 30 * time.Second // until a watch begins
	watchTimeout  = 5 * time.Minute  // of a watch, up to a fifth more or less: the server ends it, and it is resumed
	watchGrace    = 30 * time.Second // then the server is taken to be gone
	maxOutage     = time.Minute      // without contact, then the slices are listed again
)

// A kubeSource finds members in the EndpointSlices of a service: by a list, and then by a watch from the version of
// the list on, which is resumed where it ended as long as the server still knows that version (410 Gone otherwise).
type kubeSource struct {
	sources            *Sources
	what               spec.Discover
	namespace, service string
	getenv             func(string) string
	account            string // folder of a pod's credentials
}

func (s *Sources) kubernetes(d spec.Discover) *kubeSource {
	namespace, service, _ := strings.Cut(d.Key, "/")
	return &kubeSource{sources: s, what: d, namespace: namespace, service: service, getenv: os.Getenv, account: serviceAccount}
}

func (k *kubeSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	k.sources.watch(ctx, k.what, update, k.follow)
}

// A kubeWatch is a kubeSource that is watched.
type kubeWatch struct {
	*kubeSource
	feed           *feed
	client         *kubeClient // nil: none yet, or the last request has failed
	members        *kubeMembers
	version        string    // resourceVersion to watch from; empty: a list is needed
	from           string    // the server that the version is of
	contact        time.Time // when that server last answered
	gone           int       // answers in succession that the version is too old
	failed, closed remote.Backoff
}

func (k *kubeSource) follow(ctx context.Context, f *feed) {
	w := &kubeWatch{kubeSource: k, feed: f, closed: remote.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}}
	defer w.disconnect()
	for ctx.Err() == nil {
		err := w.round(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			w.closed.Wait(ctx)
		default:
			remote.Sleep(ctx, w.handle(err))
		}
	}
}

// handle reports an error unless it is of the normal course, and returns how long to wait before the next attempt.
func (k *kubeWatch) handle(err error) time.Duration {
	var denied *deniedError
	var status *statusError
	if !errors.Is(err, errGone) {
		k.disconnect() // so that the next attempt reads credentials again
	}
	switch {
	case errors.Is(err, errGone):
		if k.gone++; k.gone > 1 { // one is normal, after a compaction
			k.feed.failed(err)
		}
		k.version = ""
	case errors.As(err, &denied):
		if access, err := k.access(); err == nil {
			if c, err := access.client(k.sources.opt.dial); err == nil {
				token := c.bearer()
				c.Close()
				if token != denied.token {
					return 0 // it has been replaced meanwhile
				}
			}
		}
		k.feed.failed(err)
	default:
		k.feed.failed(err)
	}
	wait := k.failed.Next()
	if errors.As(err, &status) {
		wait = max(wait, status.retryAfter)
	}
	return wait
}

func (k *kubeSource) access() (kubeAccess, error) {
	return accessOf(k.what.Registry, k.getenv, k.account)
}

func (k *kubeWatch) disconnect() {
	if k.client != nil {
		k.sources.release(k.what.Registry, k.client)
		k.client = nil
	}
}

// round lists the slices if need be, and then follows their changes until the server ends the watch, which is no error.
func (k *kubeWatch) round(ctx context.Context) error {
	if k.client == nil {
		access, err := k.access()
		if err != nil {
			return err
		}
		if k.client, err = k.sources.kubeClient(k.what.Registry, access); err != nil {
			return err
		}
		// A version means nothing to another server, and may be one of the future to one whose data were restored meanwhile.
		if from := access.Servers[0] + access.path; from != k.from || time.Since(k.contact) > maxOutage {
			k.version, k.from = "", from
		}
	}
	if k.version == "" {
		if err := k.list(ctx); err != nil {
			return err
		}
	}
	return k.watch(ctx)
}

func (k *kubeSource) path() string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + k.namespace + "/endpointslices"
}

func (k *kubeSource) selector() url.Values {
	return url.Values{"labelSelector": {serviceLabel + "=" + k.service}}
}

// list reads all slices of the service, page by page.
func (k *kubeWatch) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errSlow)
	defer cancel()
	found := newKubeMembers(k.what, k.service, k.feed)
	query := k.selector()
	query.Set("limit", strconv.Itoa(kubePage))
	for range maxKubePages {
		meta, err := k.page(ctx, query, found)
		if err != nil {
			return err
		}
		if meta.Continue == "" {
			if meta.ResourceVersion == "" {
				return errors.New("the list of EndpointSlices has no resourceVersion")
			}
			k.members, k.version = found, meta.ResourceVersion
			return found.tell(true, nil, found.slices)
		}
		query.Set("continue", meta.Continue)
	}
	return fmt.Errorf("the list of EndpointSlices does not end after %d pages", maxKubePages)
}

// page reads one page of a list.
func (k *kubeWatch) page(ctx context.Context, query url.Values, found *kubeMembers) (meta listMeta, err error) {
	answer, err := k.get(ctx, query)
	if err != nil {
		return meta, err
	}
	defer answer.Body.Close()
	meta, err = readList(&remote.BoundedReader{R: answer.Body, Left: maxKubeList}, func(s *endpointSlice) error {
		_, _, err := found.put(s)
		return err
	})
	if err != nil {
		err = fmt.Errorf("list of EndpointSlices: %w", causeOf(ctx, err))
	}
	return meta, err
}

// watch follows changes until the server ends the watch.
func (k *kubeWatch) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	last := watchTimeout*4/5 + rand.N(watchTimeout*2/5)
	query := k.selector()
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", k.version)
	query.Set("timeoutSeconds", strconv.Itoa(int(last/time.Second)))
	slow := time.AfterFunc(answerTimeout, func() { cancel(errSlow) })
	answer, err := k.get(ctx, query)
	slow.Stop()
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	defer time.AfterFunc(last+watchGrace, func() { cancel(errSlow) }).Stop()
	k.failed.Working()
	k.closed.Working()
	if k.members.err == nil {
		k.feed.connected()
	}

	body := &remote.BoundedReader{R: answer.Body}
	d := newEventReader(body)
	var pace pace
	for {
		body.Left = maxKubeObject
		e, err := d.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			err = causeOf(ctx, err)
			if !errors.Is(err, io.ErrUnexpectedEOF) { // what cannot be read might also be skipped by resuming
				k.version = ""
			}
			return fmt.Errorf("watch of EndpointSlices: %w", err)
		}
		k.contact = time.Now()
		if err := k.apply(e); err != nil {
			return err
		}
		k.gone = 0
		if err := pace.wait(ctx, maxKubeObject-body.Left); err != nil {
			return nil // ctx has ended
		}
	}
}

// apply applies an event of a watch.
func (k *kubeWatch) apply(e watchEvent) error {
	o := &e.Object
	if e.Type == "ERROR" {
		k.version = "" // what the server says of a watch that it cannot go on with is seldom true of a later one
		if o.Code == http.StatusGone || o.Reason == "Expired" || o.Reason == "Gone" {
			return errGone
		}
		return &statusError{StatusError: remote.StatusError{Status: o.Code, Text: remote.Line([]byte(o.Message))}}
	}
	if o.Metadata.ResourceVersion == "" {
		k.version = ""
		return fmt.Errorf("watch of EndpointSlices: an event of type %q has no resourceVersion", text(e.Type, 20))
	}
	var err error
	switch e.Type {
	case "ADDED", "MODIFIED":
		err = k.members.change(&o.endpointSlice)
	case "DELETED":
		err = k.members.remove(o.Metadata.Name)
	case "BOOKMARK":
	default:
		err = fmt.Errorf("watch of EndpointSlices: unknown type of event %q", text(e.Type, 20))
	}
	if err != nil {
		k.version = ""
		return err
	}
	k.version = o.Metadata.ResourceVersion
	return nil
}

// get makes a request. An answer that is no success is an error.
func (k *kubeWatch) get(ctx context.Context, query url.Values) (*http.Response, error) {
	r, token, err := k.client.request(k.path(), query)
	if err != nil {
		return nil, err
	}
	answer, err := k.client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	if err := checkAnswer(answer, token); err != nil {
		answer.Body.Close()
		return nil, err
	}
	k.contact = time.Now()
	return answer, nil
}
