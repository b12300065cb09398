package admit

import (
	"hash/maphash"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Client is held by a flow whose client was admitted by its certificate. The zero value holds nothing.
type Client struct {
	table *sourceTable
	key   uint64
}

// AdmitClient counts one more flow of a client that is known by its certificate as who, or returns the reason why
// it may not be accepted. Flows that were admitted while clients had no limits do not count.
func (g *Controller) AdmitClient(who string, now time.Time) (Client, spec.Reason) {
	if !g.client.any() {
		return Client{}, spec.ReasonNone
	}
	c := Client{g.clients, maphash.String(g.clients.seed, who)}
	switch why := c.table.enter(c.key, g.client, now); why {
	case spec.ReasonNone:
		return c, why
	case spec.ReasonSourceFlows:
		return Client{}, spec.ReasonClientFlows
	case spec.ReasonSourceRate:
		return Client{}, spec.ReasonClientRate
	default:
		return Client{}, why
	}
}

// RestoreClient counts a flow again that another process had admitted, without any check: it is open already.
func (g *Controller) RestoreClient(who string) Client {
	if !g.client.any() {
		return Client{}
	}
	c := Client{g.clients, maphash.String(g.clients.seed, who)}
	c.table.restore(c.key)
	return c
}

// Release releases the admission. Further calls do nothing.
func (c *Client) Release() {
	if c.table != nil {
		c.table.leave(c.key)
		*c = Client{}
	}
}
