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

// Configured returns penstock run with further keys of its engine and its listener, and an admin
// socket.
func Configured(name, note, bin, engine, listener string) Peer {
	return Peer{
		Name: name,
		Note: note,
		UDP:  true,
		Ask:  []string{bin, "version"},
		plan: func(s Setup) Plan {
			scheme := "tcp"
			if s.UDP {
				scheme = "udp"
			}
			if s.Replies > 0 {
				listener = join(listener, fmt.Sprintf("replies: %d", s.Replies))
			}
			file := filepath.Join(s.Dir, name+".yaml")
			return Plan{Argv: []string{bin, "run", "-c", file}, File: file, Config: fmt.Sprintf(`engine: {%s}
groups: {upstream: {members: ["%s://%s"]}}
listeners: {l: {%s}}
admin: {listen: "unix://%s"}
`, join(fmt.Sprintf("loops: %d", s.Loops), engine), scheme, s.Upstream, join(fmt.Sprintf("listen: \"%s://%s\", to: upstream", scheme, s.Listen), listener), adminSocket(s))}
		},
	}
}

// join joins keys, some of which may be empty.
func join(keys ...string) string {
	text := ""
	for _, k := range keys {
		if k != "" && text != "" {
			text += ", "
		}
		text += k
	}
	return text
}

// Metrics returns the metrics whose names begin with prefix, of the penstock that Configured started
// with this setup. A series with labels is named with them.
func Metrics(s Setup, prefix string) (map[string]float64, error) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", adminSocket(s))
	}}}
	resp, err := client.Get("http://localhost/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	all := make(map[string]float64)
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		i := strings.LastIndexByte(sc.Text(), ' ')
		if i < 0 || !strings.HasPrefix(sc.Text(), prefix) {
			continue
		}
		value, err := strconv.ParseFloat(sc.Text()[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", sc.Text(), err)
		}
		all[sc.Text()[:i]] = value
	}
	return all, sc.Err()
}
