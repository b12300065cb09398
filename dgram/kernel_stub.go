//go:build !linux

package dgram

// bestDriver has one to choose from.
func bestDriver(c *Conn, cfg Config) (driver, error) { return newPortable(c, cfg) }

// observeDrops has nobody to ask.
func (c *Conn) observeDrops() {}
