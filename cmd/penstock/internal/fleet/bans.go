package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
)

// Bans of a fleet are keys: the network, with _ in place of /. One that ends has a lease, so that it ends also when no relay is there.

func bansPrefix(key string) string { return key + "/bans/" }

func banKey(key string, p netip.Prefix) string {
	return bansPrefix(key) + strings.ReplaceAll(p.String(), "/", "_")
}

// maxBan bounds the text of a ban.
const maxBan = 4096

// ParseBan parses the value of a ban.
func ParseBan(value []byte) (b lists.Ban, err error) {
	if len(value) > maxBan {
		return b, fmt.Errorf("%d bytes; allowed: up to %d", len(value), maxBan)
	}
	if err = json.Unmarshal(value, &b); err != nil {
		return lists.Ban{}, err
	}
	b.Fleet = true
	return b, b.Check()
}

// networkOf returns the network of the key of a ban.
func networkOf(key, prefix string) (p netip.Prefix, ok bool) {
	name, ok := below(key, prefix)
	if !ok {
		return p, false
	}
	p, err := netip.ParsePrefix(strings.ReplaceAll(name, "_", "/"))
	return p, err == nil
}

// PutBan tells all relays of a fleet a ban.
func PutBan(ctx context.Context, c *etcd.Client, key string, b lists.Ban) error {
	var lease etcd.LeaseID
	if !b.Until.IsZero() {
		var err error
		if lease, err = c.Grant(ctx, max(time.Until(b.Until), time.Second)+time.Second); err != nil {
			return err
		}
	}
	text, err := json.Marshal(&b)
	if err != nil { // strings and times
		panic(err)
	}
	_, err = c.Put(ctx, banKey(key, b.Network), text, lease)
	return err
}

// LiftBan lifts a ban of all relays of a fleet.
func LiftBan(ctx context.Context, c *etcd.Client, key string, p netip.Prefix) (bool, error) {
	n, err := c.Delete(ctx, banKey(key, p))
	return n > 0, err
}

// FollowBans tells the bans of a fleet until ctx ends; if all is set, the fleet has no others. A malformed one is left out.
func FollowBans(ctx context.Context, c *etcd.Client, key string, tell func(all bool, bans []lists.Ban, lifted []netip.Prefix)) {
	prefix := bansPrefix(key)
	c.Follow(ctx, prefix, func(ch etcd.Change) {
		var bans []lists.Ban
		var lifted []netip.Prefix
		for _, kv := range ch.KVs {
			p, ok := networkOf(kv.Key, prefix)
			b, err := ParseBan(kv.Value)
			if !ok || err != nil || b.Network != p {
				continue
			}
			bans = append(bans, b)
		}
		for _, k := range ch.Deleted {
			if p, ok := networkOf(k, prefix); ok {
				lifted = append(lifted, p)
			}
		}
		tell(ch.All, bans, lifted)
	}, nil)
}
