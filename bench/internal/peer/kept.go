//go:build linux

package peer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// kept returns penstock run with one configuration, without a keeper and with one that holds flows
// once they have relayed for a time. The differences between them are the cost of the keeper.
func kept(bin string) []Peer {
	return []Peer{
		Kept("penstock-alone", "penstock run without a keeper", bin, ""),
		Kept("penstock-keep", "penstock run with a keeper that holds flows after 1 s, as by default", bin, "{}"),
		Kept("penstock-keep0", "penstock run with a keeper that holds flows at once", bin, "{keep-after: 0s}"),
		Kept("penstock-keep5", "penstock run with a keeper that holds flows after 5 s", bin, "{keep-after: 5s}"),
	}
}

// guarded returns penstock run with the sandbox and a memory budget, and without both.
func guarded(bin string) []Peer {
	return []Peer{
		configured("penstock-guarded", "penstock run with the sandbox, as by default, and a memory budget of 4 GiB", bin, "memory: 4GiB", ""),
		configured("penstock-unguarded", "penstock run without a sandbox and a memory budget", bin, "memory: none", "sandbox: {mode: off}\n"),
	}
}

// Kept returns penstock run with a keeper, whose section of the configuration is given. Without one
// it has no keeper.
func Kept(name, note, bin, keeper string) Peer {
	if keeper == "" {
		return configured(name, note, bin, "", "")
	}
	p := configured(name, note, bin, "", "keeper: "+keeper+"\n")
	p.Admin = adminSocket
	return p
}

// configured returns penstock run with more of section engine, and more sections.
func configured(name, note, bin, more, sections string) Peer {
	return Peer{
		Name: name,
		Note: note,
		UDP:  true,
		Ask:  []string{bin, "version"},
		plan: func(s Setup) Plan {
			scheme, replies := "tcp", ""
			if s.UDP {
				scheme = "udp"
			}
			engine := fmt.Sprintf("loops: %d", s.Loops)
			if s.Replies > 0 {
				// As for Penstock.
				replies, engine = fmt.Sprintf(", replies: %d", s.Replies), engine+", max-new-flows: 1000000"
			}
			if more != "" {
				engine += ", " + more
			}
			text := fmt.Sprintf("engine: {%s}\ngroups: {upstream: {members: [\"%s://%s\"]}}\nlisteners: {l: {listen: \"%s://%s\", to: upstream%s}}\nadmin: {listen: \"unix://%s\"}\n%s",
				engine, scheme, s.Upstream, scheme, s.Listen, replies, adminSocket(s), sections)
			file := filepath.Join(s.Dir, name+".yaml")
			return Plan{Argv: []string{bin, "run", "-c", file}, File: file, Config: text}
		},
	}
}

// Settled returns how many open flows would continue if the worker of the penstock with this admin
// socket died now. It asks for the metrics, which costs the worker CPU time and memory.
func Settled(socket string) (int64, error) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Get("http://localhost/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	const name = "penstock_keeper_flows "
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		if value, ok := strings.CutPrefix(sc.Text(), name); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n), err
		}
	}
	return 0, fmt.Errorf("%s: no metric %s", socket, name)
}
