package lists

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// loadTimeout bounds one attempt to load a list.
const loadTimeout = 2 * time.Minute

// Host is what loading a list needs of the host.
type Host struct {
	Open func(path string) (*os.File, error) // opens what this process may not open itself; nil: nobody does

	dial func(ctx context.Context, network, address string) (net.Conn, error) // of etcd; nil: a net.Dialer does
}

func (h *Host) open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // of a pipe, it would wait for the other end
	if errors.Is(err, fs.ErrPermission) && h.Open != nil {
		if asked, failed := h.Open(path); failed == nil {
			return asked, nil
		}
	}
	return f, err
}

// stamp tells whether a file is another one.
type stamp struct {
	size int64
	at   time.Time
	info os.FileInfo
}

func (s stamp) same(info os.FileInfo) bool {
	return s.info != nil && s.size == info.Size() && s.at.Equal(info.ModTime()) && os.SameFile(s.info, info)
}

// Look loads a list again if it is time to, and reports whether there was anything to load. If it fails, the list stays as it was.
func (l *List) Look(ctx context.Context, now time.Time, h Host) (looked bool, err error) {
	l.loading.Lock()
	defer l.loading.Unlock()
	if now.Before(l.next) {
		return false, nil
	}
	l.next = now.Add(l.Spec.Interval())
	return l.load(ctx, now, h)
}

// Load loads a list now.
func (l *List) Load(ctx context.Context, now time.Time, h Host) error {
	l.loading.Lock()
	defer l.loading.Unlock()
	l.next = now.Add(l.Spec.Interval())
	_, err := l.load(ctx, now, h)
	return err
}

func (l *List) load(ctx context.Context, now time.Time, h Host) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	set, r, err := l.read(ctx, now, h)
	if err == nil && set == nil {
		if l.Spec.CrowdSec != "" { // which has said so
			l.mu.Lock()
			l.status.Loaded = now
			l.mu.Unlock()
		}
		return false, nil // it has not changed
	}
	defer giveBack(l.Set(), set)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.status.Failures++
		if l.status.Err == nil {
			l.status.Since = now
		}
		l.status.Err = err
		return true, err
	}
	l.set.Store(set)
	l.status.Loaded, l.status.Saved, l.status.Report, l.status.Err, l.status.Since = now, false, r, nil, time.Time{}
	return true, nil
}

// largeSet is from how many bytes on a set that was replaced is given back at once, and what was needed to read the other one. The collector
// would leave it until as much again was allocated, which a relay may not do for hours.
const largeSet = 4 << 20

func giveBack(old, set *Set) {
	if set != nil && old.Bytes()+set.Bytes() > largeSet {
		debug.FreeOSMemory()
	}
}

// read reads a list; no set: it is what it was.
func (l *List) read(ctx context.Context, now time.Time, h Host) (*Set, Report, error) {
	switch {
	case l.Spec.File != "":
		return l.readFile(h)
	case l.Spec.CrowdSec != "":
		return l.readCrowdSec(ctx, now, h)
	case l.Spec.Etcd != "":
		return l.readEtcd(ctx, h)
	}
	text, err := get(ctx, l.client(), l.Spec.URL, nil)
	if err != nil {
		return nil, Report{}, err
	}
	return parseAll(bytes.NewReader(text), &l.Spec)
}

func (l *List) readFile(h Host) (*Set, Report, error) {
	path := l.Spec.File
	f, err := h.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Report{}, fmt.Errorf("%s: no such file", path)
	}
	if err != nil {
		return nil, Report{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, Report{}, err
	case !info.Mode().IsRegular():
		return nil, Report{}, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > MaxBytes: // not read each time to find out
		return nil, Report{}, fmt.Errorf("%s: %d bytes; allowed: up to %d", path, info.Size(), MaxBytes)
	case l.seen.same(info) && l.status.Err == nil:
		return nil, Report{}, nil
	case l.seen.same(info) && l.bad != nil:
		return nil, Report{}, l.bad
	}
	set, r, err := parseAll(f, &l.Spec)
	if broken := new(fs.PathError); errors.As(err, &broken) {
		return nil, Report{}, err
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	l.seen, l.bad = stamp{info.Size(), info.ModTime(), info}, err
	return set, r, err
}

// client returns how the server of a URL is reached.
func (l *List) client() remote.Config {
	at := l.Spec.URL
	if l.Spec.CrowdSec != "" {
		at = l.Spec.CrowdSec
	}
	u, err := url.Parse(at)
	if err != nil {
		return remote.Config{}
	}
	c := remote.Config{Servers: []string{u.Scheme + "://" + u.Host}, CA: l.Spec.CA, TokenFile: l.Spec.KeyFile}
	return c
}

// get makes one request.
func get(ctx context.Context, cfg remote.Config, at string, header http.Header) ([]byte, error) {
	c, err := remote.New(cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r, err := http.NewRequestWithContext(ctx, "GET", at, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		r.Header[k] = v
	}
	answer, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode >= 300 && answer.StatusCode < 400:
		return nil, fmt.Errorf("%s leads to %s; allowed: the URL itself", remote.Line([]byte(at)), remote.Line([]byte(answer.Header.Get("Location"))))
	case answer.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 512))
		return nil, &remote.StatusError{Status: answer.StatusCode, Text: remote.Line(text)}
	}
	return remote.Read(answer.Body, MaxBytes)
}

// readEtcd reads the values of all keys below a prefix, each of which is a text.
func (l *List) readEtcd(ctx context.Context, h Host) (*Set, Report, error) {
	cfg := remote.Of(l.Spec.Registry)
	if cfg.DialContext == nil {
		cfg.DialContext = h.dial
	}
	c, err := etcd.New(etcd.Config{Remote: cfg})
	if err != nil {
		return nil, Report{}, err
	}
	defer c.Close()
	kvs, _, err := c.Prefix(ctx, l.Spec.Etcd)
	if err != nil {
		return nil, Report{}, err
	}
	var all Report
	set := &Set{}
	for _, kv := range kvs {
		r, err := set.parse(bytes.NewReader(kv.Value), &l.Spec)
		if err != nil {
			return nil, r, fmt.Errorf("%s: %w", remote.Line([]byte(kv.Key)), err)
		}
		for _, s := range r.Named[:min(len(r.Named), maxNamed-len(all.Named))] {
			all.Named = append(all.Named, remote.Line([]byte(kv.Key))+": "+s)
		}
		all.Bad, all.Entries = all.Bad+r.Bad, all.Entries+r.Entries
	}
	return set.finish(), all, nil
}

// bouncerKey returns the key of a bouncer as CrowdSec wants it.
func bouncerKey(path string, h Host) (http.Header, error) {
	f, err := h.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := remote.Read(f, maxLine)
	key := strings.TrimSpace(string(text))
	if err != nil || key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.Join(fmt.Errorf("%s: not the key of a bouncer", path), err)
	}
	return http.Header{"X-Api-Key": {key}}, nil
}
