package app

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What a person at a terminal sees of the daemon, beside its log.

// liveLine returns a function that returns what the daemon does now as one line of a terminal.
func (d *daemon) liveLine() func(width int) string {
	sample := func() api.Sample {
		s := d.Status().Sample
		s.Uptime = time.Since(d.started).Seconds()
		return s
	}
	before := sample()
	return func(width int) string {
		after := sample()
		line := console.LiveLine(&before, &after, width)
		before = after
		return line
	}
}

// greeting tells a person what runs, how to try it, and how to stop it.
func (d *daemon) greeting(files []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	cfg := d.active.Load()
	var b strings.Builder
	fmt.Fprintf(&b, "penstock %s", version())
	if len(files) > 0 {
		fmt.Fprintf(&b, ", configuration %s", strings.Join(files, ", "))
	}
	b.WriteString("\n\n")
	try := ""
	for _, l := range cfg.Listeners {
		at := d.listensAt(l)
		var to []string
		seen := map[*spec.Group]bool{}
		for _, r := range l.AllRoutes() {
			for g := range r.Groups() {
				if seen[g] {
					continue
				}
				seen[g] = true
				if len(files) == 0 && len(g.Members) > 0 {
					for _, m := range g.Members {
						to = append(to, m.To.String())
					}
					continue
				}
				text, n := g.Name, d.set.Group(g.Name).Len()
				if n != 1 {
					text += fmt.Sprintf(" (%d members)", n)
				}
				to = append(to, text)
			}
		}
		const shown = 4
		if more := len(to) - shown; more > 0 {
			to = append(to[:shown], fmt.Sprintf("and %d more", more))
		}
		name := ""
		if len(cfg.Listeners) > 1 {
			name = l.Name + "  "
		}
		fmt.Fprintf(&b, "  %s%s -> %s\n", name, at, strings.Join(to, ", "))
		if try == "" {
			try = tryCommand(at)
		}
	}
	b.WriteString("\n")
	if try != "" {
		fmt.Fprintf(&b, "Try it:  %s\n", try)
	}
	if at, ok := cfg.Admin.Commands(); ok {
		fmt.Fprintf(&b, "Watch:   penstock top --admin %s\n", at)
	}
	fmt.Fprintf(&b, "Stop:    Ctrl-C (open flows may go on for %v; a second Ctrl-C ends them)\n\n", cfg.Drain)
	return b.String()
}

// tryCommand returns a command that connects to a listener, or an empty string if there is no
// common one.
func tryCommand(url string) string {
	network, at, _ := strings.Cut(url, "://")
	flag := map[string]string{"tcp": "", "udp": "-u ", "unix": "-U ", "unixgram": "-uU "}
	if strings.HasPrefix(network, "unix") {
		if !strings.HasPrefix(at, "/") {
			return ""
		}
		return "nc " + flag[network] + at
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	port, _, _ = strings.Cut(port, "-") // of a range
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "nc " + flag[network] + host + " " + port
}
