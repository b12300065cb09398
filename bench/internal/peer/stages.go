//go:build linux

package peer

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// routes is the number of routes of a penstock with every stage in use.
const routes = 1000

// stages is penstock run with every stage in use: allow and deny lists, limits in total, per
// listener and per source, routes of which the last one matches, p2c, and an access log.
func stages(bin string) Peer {
	return penstockRun("stages", fmt.Sprintf("penstock run: allow and deny, limits, %d routes, p2c, access log", routes), bin, stagesConfig)
}

// stagesConfig returns a configuration with every stage.
func stagesConfig(s Setup) string {
	const group = "upstream"
	var b strings.Builder
	fmt.Fprintf(&b, `engine: {loops: %d}
defaults: {tcp: {keepalive: 0}} # as in penstock relay: two system calls a connection
limits: {flows: 1000000, new-flows: 1000000/s}
access-log: {to: %q}
groups:
  %s:
    balance: p2c
    members: [{name: one, to: "tcp://%s"}, {name: two, to: "tcp://%s"}]
listeners:
  l:
    listen: tcp://%s
    allow: [127.0.0.0/8, 10.0.0.0/8, "2001:db8::/32"]
    deny: [192.0.2.0/24, 198.51.100.0/24]
    limits: {flows: 1000000, new-flows: 1000000/s, source: {flows: 1000000, new-flows: 1000000/s}}
    routes:
`, s.Loops, filepath.Join(s.Dir, "access.log"), group, s.Upstream, s.Upstream, s.Listen)
	at := netip.MustParseAddr("10.0.0.0").As4()
	for i := range routes - 1 {
		at[1], at[2] = byte(i>>8), byte(i)
		fmt.Fprintf(&b, "      - {name: r%d, from: %v/24, to: %s}\n", i, netip.AddrFrom4(at), group)
	}
	fmt.Fprintf(&b, "      - {name: last, from: 127.0.0.0/8, to: %s}\n", group)
	return b.String()
}
