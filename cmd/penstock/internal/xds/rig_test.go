package xds

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

const patience = testnet.Patience

// A plane is a real control plane: go-control-plane, with the resources of a file.
type plane struct {
	*testfleet.Server
	t                 *testing.T
	resources, record string
}

func newPlane(t *testing.T, resources ...string) *plane {
	t.Helper()
	dir := t.TempDir()
	p := &plane{t: t, resources: filepath.Join(dir, "resources.json"), record: filepath.Join(dir, "record")}
	p.serve(resources...)
	p.Server = testfleet.Start(t, "ads", "-resources", p.resources, "-record", p.record)
	return p
}

// serve replaces the resources.
func (p *plane) serve(resources ...string) {
	p.t.Helper()
	text := `{"resources": [` + strings.Join(resources, ",\n") + `]}`
	next := p.resources + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(next, p.resources); err != nil {
		p.t.Fatal(err)
	}
}

// exchange is a line of the record.
type exchange struct {
	Stream                                     int64
	Kind, Type, Nonce, Error                   string
	Node                                       map[string]any
	Subscribe, Unsubscribe, Resources, Removed []string
	Known                                      map[string]string
}

func (p *plane) exchanges() (list []exchange) {
	p.t.Helper()
	b, err := os.ReadFile(p.record)
	if err != nil {
		p.t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var e exchange
		if json.Unmarshal(s.Bytes(), &e) == nil {
			list = append(list, e)
		}
	}
	return list
}

// find returns the exchanges for which f is true.
func (p *plane) find(f func(e exchange) bool) (list []exchange) {
	for _, e := range p.exchanges() {
		if f(e) {
			list = append(list, e)
		}
	}
	return list
}

func registryOf(urls ...string) spec.Registry {
	return spec.Registry{Kind: "xds", Servers: strings.Join(urls, " ")}
}

func newTestClient(t *testing.T, opt ads.Options) *ads.Client {
	t.Helper()
	if opt.Node.ID == "" {
		opt.Node = ads.Node{ID: "relay-1", Zone: "a", Version: "test"}
	}
	c, err := ads.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A follower applies what a Configuration delivers, as the daemon would: it must be valid.
type follower struct {
	texts chan *Text
	errs  chan error
}

func follow(t *testing.T, c *ads.Client, name string, partial bool) *follower {
	f := &follower{make(chan *Text, 100), make(chan error, 100)}
	conf := NewConfiguration(c, NewEndpoints(c), name, partial)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		conf.Follow(ctx, nil, func(text *Text) error {
			_, err := config.Parse("control plane", text.YAML)
			if err != nil {
				err = text.Explain(func(string) bool { return true }, err)
				f.errs <- err
				return err
			}
			f.texts <- text
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

func (f *follower) next(t *testing.T) *Text {
	t.Helper()
	select {
	case text := <-f.texts:
		return text
	case err := <-f.errs:
		t.Fatalf("refused: %v", err)
	case <-time.After(patience):
		t.Fatal("no configuration")
	}
	return nil
}
