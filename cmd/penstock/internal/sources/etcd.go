package sources

import (
	"context"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// etcdConfig follows a configuration that penstock publish has put into etcd. What has become of a version is in
// the report of the relay.
type etcdConfig struct {
	client *etcd.Client
	key    string
	node   string
	ran    int64
}

func newEtcdConfig(r spec.Registry, key string, node spec.Node, last spec.Layer) (*etcdConfig, error) {
	// Relays that have lost contact come back within seconds: each attempt is one small request.
	client, err := etcd.New(etcd.Config{Remote: remote.Of(r), Backoff: remote.Backoff{Max: 5 * time.Second}})
	if err != nil {
		return nil, err
	}
	ran, _ := strconv.ParseInt(last.Version, 10, 64)
	return &etcdConfig{client, key, node.ID, ran}, nil
}

func (c *etcdConfig) follow(ctx context.Context, deliver func(spec.Layer, error)) {
	defer c.client.Close()
	f := fleet.Follower{Client: c.client, Key: c.key, Node: c.node, Ran: c.ran}
	f.Run(ctx, func(v fleet.Version, err error) {
		deliver(spec.Layer{Version: strconv.FormatInt(v.Version, 10), At: v.At, Text: []byte(v.Text), Trial: v.Trial}, err)
	})
}

func (c *etcdConfig) applied(string)        {}
func (c *etcdConfig) refused(string, error) {}
