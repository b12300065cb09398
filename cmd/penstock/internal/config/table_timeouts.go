package config

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var timeoutKeys = keysOf("timeouts",
	field("first-byte", duration(time.Millisecond, "never"), "never", "Maximum time from the connection to the upstream until its first byte.", func(t *spec.Timeouts) *time.Duration { return &t.FirstByte }),
	field("idle", duration(time.Millisecond, "never"), "never", "End a flow that has moved no data for this long. Datagram listeners: 60s by default.", func(t *spec.Timeouts) *time.Duration { return &t.Idle }),
	field("half-closed", duration(time.Millisecond, "never"), "60s", "End a flow when one side has closed and the other has moved no data for this long.", func(t *spec.Timeouts) *time.Duration { return &t.HalfClosed }),
	field("life", duration(time.Millisecond, "never"), "never", "Maximum duration of a flow.", func(t *spec.Timeouts) *time.Duration { return &t.Life }),
	field("life-jitter", duration(0, "0"), "0", "Spread the ends of flows that reach life over this long before it.", func(t *spec.Timeouts) *time.Duration { return &t.LifeJitter }),
)

var groupTimeoutKeys = keysOf("group.timeouts",
	field("connect", duration(time.Millisecond, ""), "5s", "Maximum time of one attempt to connect.", func(t *spec.GroupTimeouts) *time.Duration { return &t.Connect }),
	field("retries", duration(time.Millisecond, "never"), "never", "Maximum time of all attempts together. never: no further limit.", func(t *spec.GroupTimeouts) *time.Duration { return &t.Retries }),
)
