package main

import (
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// echoes reports whether a listener that echoes serves a client.
func echoes(c *configured, listener string) bool {
	conn, err := net.Dial("tcp", c.at(listener).String())
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		return false
	}
	n, err := conn.Read(make([]byte, 4))
	return n == 4 && err == nil
}

// A ban refuses new clients, ends the flows of old ones if it is asked to, and is there after a reload, a crash, and a stop; it ends by itself,
// or is lifted.
func TestBan(t *testing.T) {
	t.Parallel()
	const text = "keeper: {keep-after: 0, max-restart-delay: 100ms}\nlisteners: {web: {listen: 'tcp://127.0.0.1:0', allow: ['127.0.0.0/8'], to: 'echo:'}}\n"
	c := &configured{dir: shortDir(t)}
	c.file = c.dir + "/penstock.yaml"
	k := &kept{configured: c}
	c.write(t, text)
	start := func() {
		t.Helper()
		k.begin(t, exec.Command(binary, "run", "-c", c.file, "--state", c.dir+"/state"))
		k.endWorker(t)
		testwait.Until(t, "the API answers", k.answers)
	}
	start()
	must := func(want string, args ...string) {
		t.Helper()
		if code, out := k.command(args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d: %s", args, code, out)
		}
	}
	flow := k.to("web")
	flow.Write([]byte("ping"))
	flow.Read(make([]byte, 4))
	must("banned 127.0.0.1/32\n", "ban", "127.0.0.1")
	if echoes(c, "web") {
		t.Error("a client that is banned is served")
	}
	flow.Write([]byte("pong"))
	if n, err := flow.Read(make([]byte, 4)); n != 4 || err != nil {
		t.Errorf("the flow has ended: %v", err)
	}
	must("; ended 1 flow", "ban", "127.0.0.0/8", "--end-flows", "--for", "1h", "--why", "a test")
	if n, err := flow.Read(make([]byte, 4)); err == nil {
		t.Errorf("the flow goes on: %d bytes", n)
	}
	must("127.0.0.1/32 is not banned any more", "unban", "127.0.0.1")
	refused := func(when string) {
		t.Helper()
		if echoes(c, "web") {
			t.Errorf("%s: a client that is banned is served", when)
		}
		must("a test", "bans")
	}
	refused("now")
	c.reload()
	refused("after a reload")
	k.end(syscall.SIGKILL)
	k.started(1)
	refused("after a crash")
	k.cmd.Process.Signal(syscall.SIGTERM)
	k.cmd.Wait()
	start()
	refused("after a stop")
	for _, bad := range [][]string{{"ban", "0.0.0.0/0"}, {"ban", "nobody"}, {"unban", "192.0.2.1"}} {
		if code, out := k.command(bad...); code == 0 {
			t.Errorf("%q: %s", bad, out)
		}
	}
	must("127.0.0.0/8 is not banned any more", "unban", "127.0.0.0/8")
	if !echoes(c, "web") {
		t.Error("a client is refused whose ban was lifted")
	}
	must("banned 127.0.0.1/32 until", "ban", "127.0.0.1", "--for", "1s")
	testwait.Until(t, "the ban has ended by itself", func() bool { return echoes(c, "web") })
}

// All relays of a fleet have a ban, with the end of flows, and none when it is lifted at any of them; one that starts later has it, too.
func TestFleetBan(t *testing.T) {
	t.Parallel()
	f := newRelays(t, 2, "listeners: {web: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n")
	for _, d := range f.daemons {
		testwait.Until(t, "the relay is in the fleet", func() bool {
			s, err := d.admin.Status(d.ctx())
			return err == nil && s.Fleet != nil && s.Fleet.Present
		})
	}
	flow := f.daemons[1].to("web")
	flow.Write([]byte("ping"))
	flow.Read(make([]byte, 4))
	began := time.Now()
	b, err := f.daemons[0].admin.Ban(f.daemons[0].ctx(), api.NewBan{Network: "127.0.0.0/8", For: 3600, EndFlows: true})
	if err != nil || !b.Fleet || b.Error != "" {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := flow.Read(make([]byte, 4)); err == nil {
		t.Error("the flow of the other relay goes on")
	}
	t.Logf("the other relay has ended a flow after %v", time.Since(began))
	f.start("r2")
	for _, d := range f.daemons {
		testwait.Until(t, "each relay refuses the client", func() bool { return !echoes(d, "web") })
	}
	if _, err := f.daemons[1].admin.Unban(f.daemons[1].ctx(), "127.0.0.0/8"); err != nil {
		t.Fatal(err)
	}
	for _, d := range f.daemons {
		testwait.Until(t, "each relay serves the client again", func() bool { return echoes(d, "web") })
	}
}
