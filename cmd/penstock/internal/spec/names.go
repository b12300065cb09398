package spec

import "time"

// NameLimits bound what the names take that groups with a destination look up, whatever clients ask for. It is comparable.
type NameLimits struct {
	Names     int           // answers with addresses that are kept; those asked for longest ago go first
	Failures  int           // answers without, which have room of their own: names that do not exist push out none that do
	MinAge    time.Duration // for which an answer with addresses is kept at least
	MaxAge    time.Duration // and at most, whatever it says
	Lookups   int           // names that are looked up at the same time
	Queue     int           // names that wait for that
	PerSource int           // names that are looked up, or wait for that, because of one source: an IPv4 address, or an IPv6 /64
	Timeout   time.Duration // of one lookup
}
