package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// With a full descriptor table, clients wait until a flow ends, existing flows continue, and the
// daemon does not spin.
func TestDescriptorTableFull(t *testing.T) {
	// With CAP_SYS_RESOURCE the daemon would raise the limit again.
	drop := ""
	if os.Geteuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("setpriv(1) is missing, and as root there is no other way to a limit that holds")
		}
		drop = "setpriv --reuid=65534 --regid=65534 --clear-groups "
	}
	// Enough of them leave to make room for the rest. In a control group that limits memory or CPU the daemon has five descriptors more.
	const limit, flows, leave = 40, 60, 52
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "penstock.yaml")
	text := places(dir, "admin: {listen: 'unix://{dir}/admin.sock'}\nlog: {flows: all}\nengine: {loops: 1}\nlisteners: {a: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n", nil)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`ulimit -n %d; exec %s"$0" run -c %s`, limit, drop, file)
	d := run(t, exec.Command("sh", "-c", script, binary))
	admin, err := api.NewClient("unix://"+dir+"/admin.sock", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	state := func() string {
		t.Helper()
		l, err := admin.Listeners(t.Context())
		if err != nil || len(l.Listeners) != 1 {
			t.Fatalf("%v, %+v", err, l)
		}
		return l.Listeners[0].State
	}
	if s := state(); s != "open" {
		t.Errorf("the listener is %s at the start", s)
	}

	// There are more clients than descriptors: each sends, and the first ones get an answer.
	conns := make([]net.Conn, flows)
	for i := range conns {
		conns[i] = d.dial()
		if _, err := conns[i].Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4)
	mustRead := func(c net.Conn) {
		t.Helper()
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	mustRead(conns[0])
	// An operator sees it, although the daemon has no descriptor left.
	testwait.Until(t, "the listener is resting", func() bool { return state() == "resting" })
	waits := func() int64 {
		t.Helper()
		s, err := admin.Status(t.Context())
		if err != nil || len(s.Loops) != 1 {
			t.Fatalf("%v, %+v", err, s.Loops)
		}
		return s.Loops[0].Waits
	}
	last := conns[flows-1]
	before, began := waits(), time.Now()
	last.SetDeadline(began.Add(300 * time.Millisecond))
	if _, err := last.Read(buf); err == nil {
		t.Fatalf("%d flows at once with %d descriptors", flows, limit)
	}
	// The first flows may need some, and the end of a rest a few; a loop that spins has hundreds of thousands in a second.
	if n, took := waits()-before, time.Since(began); float64(n) > 1000+100*took.Seconds() {
		t.Errorf("the daemon spun: its loop has waited %d times in %v", n, took)
	}

	// Each client that leaves makes room for one that waits.
	for i, c := range conns {
		if i > 0 {
			mustRead(c)
		}
		if i < leave {
			c.Close()
		}
	}
	testwait.Until(t, "the listener is open", func() bool { return state() == "open" })
	for _, c := range conns[leave:] {
		mustPing(t, c)
		c.Close()
	}
	d.signal(os.Interrupt)
	d.mustExit(0)
	for _, f := range d.wait("flow", flows) {
		if f["cause"] != "end" {
			t.Errorf("%v", f)
		}
	}
}

// As root, the daemon raises its limit, whatever it was at the start.
func TestDescriptorLimitIsRaised(t *testing.T) {
	script := `ulimit -Sn 40; exec "$0" relay --log-level=debug tcp://127.0.0.1:0 echo:`
	d := run(t, exec.Command("sh", "-c", script, binary))
	if l := d.line("descriptor limit"); l["limit"].(float64) <= 40 {
		t.Errorf("%v", l)
	}
}
