package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// A relay prefers the members of its own zone that etcd names, and takes others when those drain. It
// has the members at once when it starts while etcd is away, and says how old they are.
func TestZonesAndMembersWithoutEtcd(t *testing.T) {
	t.Parallel()
	registry := testfleet.Etcd(t)
	client, err := etcd.New(etcd.Config{Remote: remote.Config{Servers: []string{registry.URL}}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	put := func(name, zone string, priority int, draining bool) {
		t.Helper()
		server := nameServer(t, name)
		if _, err := client.Put(t.Context(), "/services/web/"+name, fmt.Appendf(nil, `{"to": %q, "zone": %q, "priority": %d, "draining": %v, "metadata": {"rack": 7}}`, server, zone, priority, draining), 0); err != nil {
			t.Fatal(err)
		}
	}
	put("own", "a", 0, false)
	put("other", "b", 0, false)
	put("later", "a", 1, false)
	dir := shortDir(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	c := &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}
	c.write(t, `
reload: {watch: false}
registries: {main: {etcd: ["{0}"]}}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: web}}
groups: {web: {zone: prefer, discover: [{etcd: /services/web/}]}}
`, registry.URL)
	begin := func() { c.begin(t, exec.Command(binary, "run", "-c", c.file, "--zone", "a", "--state", state)) }
	who := func() string {
		conn, err := net.DialTimeout("tcp", c.at("a").String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		name, _ := io.ReadAll(conn)
		return string(name)
	}
	begin()
	testwait.Until(t, "three members", func() bool {
		groups, err := c.admin.Groups(c.ctx())
		return err == nil && len(groups.Groups[0].Members) == 3
	})
	for range 20 {
		if got := who(); got != "own" {
			t.Errorf("a client came to %q", got)
		}
	}
	put("own", "a", 0, true)
	testwait.Until(t, "another zone", func() bool { return who() == "other" })
	testwait.Until(t, "the file", func() bool {
		text, _ := os.ReadFile(filepath.Join(state, "members.json"))
		return strings.Contains(string(text), `"Draining":true`)
	})
	c.signal(syscall.SIGTERM)
	c.mustExit(0)

	registry.Kill()
	begin()
	if got := who(); got != "other" {
		t.Errorf("without etcd a client came to %q", got)
	}
	testwait.Until(t, "the error", func() bool {
		status, err := c.admin.Status(c.ctx())
		return err == nil && status.Groups[0].LookupError != "" && !status.Groups[0].LookupGoodTime.IsZero()
	})
	groups, err := c.admin.Groups(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range groups.Groups[0].Members {
		if m.Zone == "" || string(m.Metadata) != `{"rack":7}` || m.Draining != (m.Name == "own") || m.Priority == 1 != (m.Name == "later") {
			t.Errorf("%+v", m)
		}
	}
	registry.Restart()
	put("own", "a", 0, false)
	testwait.Until(t, "the own zone", func() bool { return who() == "own" })
	c.signal(syscall.SIGTERM)
	c.mustExit(0)
}

// nameServer tells each client its name.
func nameServer(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, name)
			conn.Close()
		}
	}()
	return "tcp://" + l.Addr().String()
}
