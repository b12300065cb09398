package ads

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

const patience = testnet.Patience

// Types of resources.
const (
	clusterURL   = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointsURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

func registryOf(urls ...string) spec.Registry {
	return spec.Registry{Kind: "xds", Servers: strings.Join(urls, " ")}
}

func newTestClient(t *testing.T, opt Options) *Client {
	t.Helper()
	if opt.Node.ID == "" {
		opt.Node = Node{ID: "relay-1", Zone: "a", Version: "test"}
	}
	c, err := NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// subscribed returns a client that subscribes to the resource web, and what it is told. It refuses a resource with the
// text other in it.
func subscribed(t *testing.T, opt Options) (answers chan Resource, errs chan error) {
	t.Helper()
	answers, errs = make(chan Resource, 1000), make(chan error, 1000)
	newTestClient(t, opt).Subscribe(Type{
		URL: endpointsURL,
		Handle: func(r *Response) error {
			for _, res := range r.Resources {
				if bytes.Contains(res.Value, []byte("other")) {
					r.Reply(errors.New("the other one"))
					return nil
				}
				answers <- res
			}
			r.Reply(nil)
			return nil
		},
		Failed: func(err error) {
			if err != nil {
				errs <- err
			}
		},
	}).Add("web")
	return answers, errs
}
