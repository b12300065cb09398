package config

import "github.com/penstock/penstock/cmd/penstock/internal/spec"

var limitsKeys = keysOf("limits",
	field("flows", count(maxCount), "0", "Maximum number of open flows. 0: no limit.", func(l *spec.Limits) *int { return &l.Flows }),
	field("new-flows", rate, "0", "Maximum rate of new flows. 0: no limit.", func(l *spec.Limits) *float64 { return &l.NewFlows }),
	field("burst", count(maxCount), "0", "Maximum number of new flows at one moment, where new-flows limits their rate. 0: one second's worth.", func(l *spec.Limits) *int { return &l.Burst }),
)

var listenerLimitsKeys = keysOf("listener.limits", append(limitsKeys.keys[:len(limitsKeys.keys):len(limitsKeys.keys)],
	field("bandwidth", bandwidth, "0", "Maximum bandwidth of one flow in each direction. 0: no limit.", func(l *spec.Limits) *int64 { return &l.Bandwidth }),
	section("source", sourceLimitsKeys, "Limits of one client: an IPv4 address or an IPv6 /64.", func(l *spec.Limits) *spec.SourceLimits { return &l.Source }),
	section("client", clientLimitsKeys, "Limits of one client by its certificate, wherever it comes from: all certificates with the same issuer, subject and names are one. They hold from the handshake on, beside those of its source.", func(l *spec.Limits) *spec.SourceLimits { return &l.Client }),
)...)

var sourceLimitsKeys = keysOf("listener.limits.source",
	field("flows", count(maxCount), "0", "Maximum number of open flows. 0: no limit.", func(l *spec.SourceLimits) *int { return &l.Flows }),
	field("new-flows", rate, "0", "Maximum rate of new flows. 0: no limit.", func(l *spec.SourceLimits) *float64 { return &l.NewFlows }),
	field("burst", count(maxCount), "0", "Maximum number of new flows at one moment, where new-flows limits their rate. 0: one second's worth.", func(l *spec.SourceLimits) *int { return &l.Burst }),
)

var clientLimitsKeys = keysOf("listener.limits.client", sourceLimitsKeys.keys...)
