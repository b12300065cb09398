//go:build linux

package peer

import (
	"fmt"
	"path/filepath"
	"strings"
)

// sniffed returns relays that look at a client's first bytes before they connect, for SSH, which no client of a load speaks. One in 65,536 begins
// like TLS, for which relays would wait.
func sniffed(bin string) []Peer {
	return []Peer{
		configured("penstock-sniff", "penstock run with a route for SSH in front of the default", bin,
			keys{listener: `sniff: {timeout: 5s}, routes: [{name: ssh, protocol: ssh, to: upstream}]`}),
		quic(bin),
		sslh(),
	}
}

// quic is a relay that routes connections of QUIC by name, and knows clients that move. Any client of a load may come.
func quic(bin string) Peer {
	return configured("penstock-quic", "penstock run with a route by the server's name of QUIC", bin, keys{listener: `routes: [{name: a, sni: [a.test], to: upstream}]`})
}

// sslh is the program that has one process for all connections: that with one for each has no CPU clock that can be read. It does not log them,
// as others do not.
func sslh() Peer {
	const config = `foreground: true;
pidfile: %[1]q;
listen: ({host: %[2]q; port: %[3]q;});
protocols: (
  {name: "ssh"; host: %[4]q; port: %[5]q; log_level: 0;},
  {name: "anyprot"; host: %[4]q; port: %[5]q; log_level: 0;}
);
`
	return Peer{
		Name: "sslh",
		Note: "sslh-select, without its log",
		Ask:  []string{"sslh-select", "-V"},
		plan: func(s Setup) Plan {
			host, port, _ := strings.Cut(s.Listen, ":")
			upHost, upPort, _ := strings.Cut(s.Upstream, ":")
			file := filepath.Join(s.Dir, "sslh.cfg")
			return Plan{Argv: []string{"sslh-select", "-F" + file}, File: file, Config: fmt.Sprintf(config, filepath.Join(s.Dir, "sslh.pid"), host, port, upHost, upPort)}
		},
	}
}
