package config

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var tcpKeys = keysOf("tcp",
	field("nagle", boolean(true), "false", "Let TCP delay small segments to merge them (TCP_NODELAY off).", func(s *spec.Socket) *bool { return &s.Nagle }),
	field("keepalive", duration(time.Second, "never"), "2m", "Probe a peer that has been silent for this long.", func(s *spec.Socket) *time.Duration { return &s.KeepAlive }),
	field("keepalive-interval", duration(time.Second, "0"), "0", "Time between probes. 0: the kernel's default.", func(s *spec.Socket) *time.Duration { return &s.KeepAliveInterval }),
	field("keepalive-count", count(127), "0", "Number of unanswered probes that ends the connection. 0: the kernel's default.", func(s *spec.Socket) *int { return &s.KeepAliveCount }),
	field("user-timeout", duration(time.Millisecond, "0"), "0", "End a connection whose data stays unacknowledged for this long. 0: the kernel's default.", func(s *spec.Socket) *time.Duration { return &s.UserTimeout }),
	field("fast-open", count(65535), "0", "Listeners: the length of the TCP Fast Open queue. Upstreams: any number above 0 enables TCP Fast Open.", func(s *spec.Socket) *int { return &s.FastOpen }),
	field("mptcp", boolean(true), "false", "Use Multipath TCP where the kernel and the peer support it.", func(s *spec.Socket) *bool { return &s.MPTCP }),
	field("congestion", congestion, "", "Congestion control algorithm, one of net.ipv4.tcp_available_congestion_control. Default: the kernel's.", func(s *spec.Socket) *string { return &s.Congestion }),
	field("recv-buffer", size(0, maxCount), "0", "SO_RCVBUF. 0: the kernel tunes it.", func(s *spec.Socket) *int { return &s.RecvBuffer }),
	field("send-buffer", size(0, maxCount), "0", "SO_SNDBUF. 0: the kernel tunes it.", func(s *spec.Socket) *int { return &s.SendBuffer }),
)

var congestion = texts("congestion control", "a name such as cubic or bbr", `^[a-z0-9_-]{1,15}$`, keepText)
