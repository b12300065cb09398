package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// agentAt is a member's agent: it says one line to each client, after what the client sends.
type agentAt struct {
	port string
	line atomic.Pointer[string]
	sent atomic.Pointer[string] // by the last client
}

func startAgent(t *testing.T) *agentAt {
	l := testnet.Listen(t, "tcp4")
	a := &agentAt{}
	_, a.port, _ = net.SplitHostPort(l.Addr().String())
	acceptAll(t, l, func(c net.Conn) {
		defer c.Close()
		sent, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return
		}
		a.sent.Store(&sent)
		if line := a.line.Load(); line != nil {
			io.WriteString(c, *line)
		}
	})
	return a
}

// The same agent says the same to HAProxy and to Penstock, with the same configuration: the same weights, states and limits.
func TestConvertedAgentBesideHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	s, a := speak(t, "web"), startAgent(t)
	stats := filepath.Join(shortDir(t), "stats")
	text := haproxyDefaults + "listen web\n bind {0}\n default-server check inter 200ms agent-check agent-inter 200ms agent-send \"web state\\n\" agent-port " + a.port + "\n" +
		" server s100 " + s.Addr().String() + " weight 100 maxconn 50\n server s3 " + s.Addr().String() + " weight 3\n"
	_, _, ours := runBeside(t, "haproxy.cfg", 1, text, func(file string) []string {
		more := filepath.Join(filepath.Dir(file), "stats.cfg")
		if err := os.WriteFile(more, []byte("global\n stats socket "+stats+" level admin\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return append(startHAProxy(file), "-f", more)
	})
	theirs := func() string {
		c, err := net.Dial("unix", stats)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		io.WriteString(c, "show stat\n")
		rows, err := csv.NewReader(c).ReadAll()
		if err != nil || len(rows) == 0 {
			return fmt.Sprint(err)
		}
		at := map[string]int{}
		for i, name := range rows[0] {
			at[strings.TrimPrefix(name, "# ")] = i
		}
		words := map[string]string{"UP": "up", "DOWN": "down", "DRAIN": "drained", "MAINT": "disabled"}
		var list []string
		for _, r := range rows[1:] {
			if name := r[at["svname"]]; strings.HasPrefix(name, "s") {
				state, _, _ := strings.Cut(r[at["status"]], " ")
				list = append(list, fmt.Sprintf("%s %s %s/%s", name, words[state], r[at["weight"]], cmp.Or(r[at["slim"]], "0")))
			}
		}
		return strings.Join(list, ", ")
	}
	mine := func() string {
		g, err := ours.admin.Group(t.Context(), "web")
		if err != nil {
			return err.Error()
		}
		var list []string
		for _, m := range g.Members {
			list = append(list, fmt.Sprintf("%s %s %d/%d", m.Name, m.State, m.Weight, m.MaxFlows))
		}
		return strings.Join(list, ", ")
	}
	for _, c := range []struct{ line, want, here string }{
		{"", "s100 up 100/50, s3 up 3/0", ""},
		{"up ready 100%\n", "s100 up 100/50, s3 up 3/0", ""},
		{"50%\r\n", "s100 up 50/50, s3 up 1/0", ""},
		{"70%,maxconn:7\n", "s100 up 70/7, s3 up 2/7", ""},
		{"down # disk full\n", "s100 down 70/7, s3 down 2/7", ""},
		{"100% ready\n", "s100 down 100/7, s3 down 3/7", ""},
		{"up", "s100 down 100/7, s3 down 3/7", ""}, // the line does not end
		{"UP\n", "s100 up 100/7, s3 up 3/7", ""},
		{"fail\n", "s100 down 100/7, s3 down 3/7", ""},
		{"up drain\n", "s100 drained 100/7, s3 drained 3/7", ""},
		{"maint maxconn:9\n", "s100 disabled 100/9, s3 disabled 3/9", ""},
		{"ready\n", "s100 up 100/9, s3 up 3/9", ""},
		{"stopped\tzz\n", "s100 down 100/9, s3 down 3/9", ""},
		{"up 300%\n", "s100 up 256/9, s3 up 9/9", ""},
		{"100% maxconn:20 zz -5%\n", "s100 up 100/20, s3 up 3/20", ""},
		// What differs: a weight becomes 0 here by 0% only, and a member without flows has no weight of 0.
		{"20%\n", "s100 up 20/20, s3 up 0/20", "s100 up 20/20, s3 up 1/20"},
		{"0%\n", "s100 up 0/20, s3 up 0/20", "s100 drained 1/20, s3 drained 1/20"},
		{"100%\n", "s100 up 100/20, s3 up 3/20", ""},
	} {
		a.line.Store(&c.line)
		if c.here == "" {
			c.here = c.want
		}
		t.Logf("the agent says %q: HAProxy has %s; Penstock has %s", c.line, c.want, c.here)
		testwait.Until(t, "HAProxy has "+c.want, func() bool { return theirs() == c.want })
		testwait.Until(t, "Penstock has "+c.here, func() bool { return mine() == c.here })
	}
	if sent := a.sent.Load(); sent == nil || *sent != "web state\n" {
		t.Errorf("sent %v", sent)
	}
}
