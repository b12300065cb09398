//go:build !linux

package dgram

// bestDriver has one to choose from.
func bestDriver(c *Conn, cfg Config) (driver, error) { return newPortable(c, cfg) }

// observeDrops does nothing: the system has no such counter.
func (c *Conn) observeDrops() {}
