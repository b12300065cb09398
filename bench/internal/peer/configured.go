//go:build linux

package peer

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/bench/internal/admin"
)

// penstockRun returns penstock run with a configuration.
func penstockRun(name, note, bin string, config func(s Setup) string) Peer {
	return Peer{
		Name: name,
		Note: note,
		Ask:  []string{bin, "version"},
		plan: func(s Setup) Plan {
			file := filepath.Join(s.Dir, name+".yaml")
			return Plan{Argv: []string{bin, "run", "-c", file}, File: file, Config: config(s)}
		},
	}
}

// keys are what a configuration has besides what each needs.
type keys struct {
	engine, listener string
	sections         string // lines
	unlimited        bool   // the default limit on new flows is lifted if flows end after some replies
}

// configured returns penstock run with an admin socket, and further keys.
func configured(name, note, bin string, k keys) Peer {
	p := penstockRun(name, note, bin, func(s Setup) string {
		scheme := "tcp"
		if s.UDP {
			scheme = "udp"
		}
		engine, listener := fmt.Sprintf("loops: %d", s.Loops), fmt.Sprintf("listen: \"%s://%s\", to: upstream", scheme, s.Listen)
		if s.Replies > 0 {
			listener += fmt.Sprintf(", replies: %d", s.Replies)
			if k.unlimited {
				engine += ", max-new-flows: 1000000" // as for Penstock
			}
		}
		return fmt.Sprintf("engine: {%s}\ngroups: {upstream: {members: [\"%s://%s\"]}}\nlisteners: {l: {%s}}\nadmin: {listen: \"unix://%s\"}\n%s",
			engine+optional(", ", k.engine), scheme, s.Upstream, listener+optional(", ", k.listener), adminSocket(s), k.sections)
	})
	p.UDP = true
	return p
}

// Configured returns penstock run with further keys of its engine and its listener, and an admin
// socket.
func Configured(name, note, bin, engine, listener string) Peer {
	return configured(name, note, bin, keys{engine: engine, listener: listener})
}

// optional returns the text with what follows it, or nothing.
func optional(text, value string) string {
	if value == "" {
		return ""
	}
	return text + value
}

// Metrics returns the metrics whose names begin with prefix, of the penstock that Configured started
// with this setup. A series with labels is named with them.
func Metrics(s Setup, prefix string) (map[string]float64, error) {
	m, err := (&admin.Client{Socket: adminSocket(s)}).Metrics()
	maps.DeleteFunc(m.Values, func(series string, _ float64) bool { return !strings.HasPrefix(series, prefix) })
	return m.Values, err
}

// Settled returns how many open flows would continue if the worker of the penstock with this admin
// socket died now. It asks for the metrics, which costs the worker CPU time and memory.
func Settled(socket string) (int64, error) {
	m, err := (&admin.Client{Socket: socket}).Metrics()
	n, ok := m.Values["penstock_keeper_flows"]
	if err == nil && !ok {
		err = fmt.Errorf("%s: no metric penstock_keeper_flows", socket)
	}
	return int64(n), err
}
