package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	engine "github.com/penstock/penstock/relay"
)

// memoryGroup is a control group of a test's own.
type memoryGroup struct {
	t      *testing.T
	folder string
	limit  string // the file with the limit
}

// newMemoryGroup makes a control group below that of this process. The test is skipped where that is not
// possible.
func newMemoryGroup(t *testing.T, limit int64) *memoryGroup {
	t.Helper()
	if testnet.RaceEnabled {
		t.Skip("with the race detector the daemon takes several times the memory")
	}
	place, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("no control groups: ", err)
	}
	for line := range strings.Lines(string(place)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		g := &memoryGroup{t: t, limit: "memory.limit_in_bytes"}
		switch {
		case parts[1] == "memory":
			g.folder = "/sys/fs/cgroup/memory"
		case parts[0] == "0" && parts[1] == "":
			g.folder, g.limit = "/sys/fs/cgroup", "memory.max"
		default:
			continue
		}
		g.folder = filepath.Join(g.folder, parts[2], fmt.Sprintf("penstock-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(g.folder, 0o755) != nil {
			continue
		}
		t.Cleanup(g.remove)
		if os.WriteFile(filepath.Join(g.folder, g.limit), []byte(strconv.FormatInt(limit, 10)), 0) == nil && g.takes() {
			return g
		}
	}
	t.Skip("no control group with a limit of memory can be made here")
	return nil
}

// takes reports whether a process may enter the group.
func (g *memoryGroup) takes() bool { return g.command("true").Run() == nil }

func (g *memoryGroup) remove() {
	var err error
	if !testwait.For(func() bool {
		err = os.Remove(g.folder)
		return err == nil || errors.Is(err, os.ErrNotExist)
	}) {
		g.t.Error(err)
	}
}

// command returns a command that runs in the group.
func (g *memoryGroup) command(args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.folder}, args...)...)
}

// setLimit changes the limit while processes run.
func (g *memoryGroup) setLimit(n int64) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.folder, g.limit), []byte(strconv.FormatInt(n, 10)), 0); err != nil {
		g.t.Fatal(err)
	}
}

// oomKills returns how many processes were killed in the group.
func (g *memoryGroup) oomKills() (n int) {
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		text, _ := os.ReadFile(filepath.Join(g.folder, name))
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "oom_kill %d", &n)
		}
	}
	return n
}

// smallServer is an upstream that does not read; its sockets take little.
func smallServer(t *testing.T) net.Addr {
	t.Helper()
	e, err := engine.New(engine.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	l, err := e.Listen(engine.Addr{Network: engine.TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, engine.ListenConfig{
		Paused: true, Socket: engine.SocketOptions{RecvBuffer: 4096}, Hooks: engine.Hooks{Upstream: func(*engine.Flow, int) *engine.Addr { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return net.TCPAddrFromAddrPort(l.Addr().AddrPort)
}

// overloaded is a daemon with a control group, and its flows.
type overloaded struct {
	*configured
	group *memoryGroup
	idle  []net.Conn
	busy  chan error // the end of the busy flow
	stop  chan struct{}
	conns []net.Conn // that are stalled, or wait
}

func startOverloaded(t *testing.T, limit int64, engine string) *overloaded {
	t.Helper()
	g := newMemoryGroup(t, limit)
	dir := shortDir(t)
	c := &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}
	c.write(t, `
defaults: {tcp: {recv-buffer: 128KiB, send-buffer: 16KiB}}
engine: {{0}}
log: {flows: none}
listeners:
  echo: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}
  stalled: {listen: 'tcp://127.0.0.1:0', to: '{1}'}
`, engine, url(smallServer(t)))
	c.begin(t, g.command(binary, "run", "-c", c.file))
	o := &overloaded{configured: c, group: g, busy: make(chan error, 1), stop: make(chan struct{})}
	for range 20 {
		conn := testnet.Dial(t, c.at("echo"))
		mustPing(t, conn)
		o.idle = append(o.idle, conn)
	}
	busy := testnet.Dial(t, c.at("echo"))
	go func() { o.busy <- checksummed(busy, o.stop) }()
	return o
}

// checksummed sends numbered blocks and wants each of them back, until it is told to stop.
func checksummed(c net.Conn, stop chan struct{}) error {
	block, back := make([]byte, 16<<10), make([]byte, 16<<10)
	for n := 0; ; n++ {
		select { // it is busy, and leaves some CPU to others
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
		for i := range block {
			block[i] = byte(n * (i + 1))
		}
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(block); err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
		if _, err := io.ReadFull(c, back); err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
		if crc32.ChecksumIEEE(back) != crc32.ChecksumIEEE(block) {
			return fmt.Errorf("block %d: wrong bytes", n)
		}
	}
}

// stall adds clients that send and whose upstream does not read.
func (o *overloaded) stall(n int) {
	o.t.Helper()
	text := make([]byte, 128<<10)
	for range n {
		c, err := net.DialTimeout("tcp", o.at("stalled").String(), patience)
		if err != nil {
			o.t.Fatal(err)
		}
		o.conns = append(o.conns, c)
		c.SetWriteDeadline(time.Now().Add(time.Millisecond))
		c.Write(text)
	}
}

func (o *overloaded) hangUp() {
	for _, c := range o.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	o.conns = nil
}

// overload returns the state of memory.
func (o *overloaded) overload() (r api.OverloadResource, active map[string]bool, count map[string]int64) {
	o.t.Helper()
	s, err := o.admin.Status(context.Background())
	if err != nil {
		o.t.Fatalf("%v; %d OOM kills", err, o.group.oomKills())
	}
	active, count = map[string]bool{}, map[string]int64{}
	for _, x := range s.Overload.Resources {
		if x.Name == "memory" {
			r = x
		}
	}
	for _, a := range s.Overload.Actions {
		active[a.Name], count[a.Name] = a.Active, a.Count
	}
	return r, active, count
}

// survives checks what must hold whatever happens.
func (o *overloaded) survives() {
	o.t.Helper()
	select {
	case err := <-o.busy:
		o.t.Fatalf("the busy flow: %v", err)
	default:
	}
	if n := o.group.oomKills(); n != 0 {
		o.t.Fatalf("%d processes were killed", n)
	}
}

// waitedFirst checks, by the order of the events, that new clients waited before any flow was ended, however long ago that was.
func (o *overloaded) waitedFirst() {
	o.t.Helper()
	events, err := o.admin.Events(context.Background(), 0)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range events.Events {
		switch action, _, begins := strings.Cut(e.Message, " begins at "); {
		case begins && action == "no-streams":
			return
		case begins && (action == "end-stalled" || action == "end-idle"):
			o.t.Fatalf("flows were ended before new clients waited: %+v", events.Events)
		}
	}
	o.t.Fatalf("no event says that new clients wait: %+v", events.Events)
}

// The daemon outlives clients that would have it killed, in the documented order, and recovers.
func TestOverloadMemory(t *testing.T) {
	o := startOverloaded(t, 64<<20, "pipes: -1")
	if r, _, _ := o.overload(); r.Limit != 64<<20 || r.Pressure <= 0 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	// New clients wait before any flow ends.
	for n := 0; ; n++ {
		o.survives()
		if _, active, _ := o.overload(); active["no-streams"] {
			if !active["no-datagram-flows"] || !active["shrink"] {
				t.Errorf("active: %v", active)
			}
			break
		}
		if n == 60 {
			r, active, _ := o.overload()
			t.Fatalf("%d clients do not suffice: %+v, %v", len(o.conns), r, active)
		}
		o.stall(100)
	}
	o.waitedFirst()
	for range 10 { // these are not accepted, and not reset
		o.stall(1)
	}
	o.survives()
	// The limit is lowered: stalled flows end, and no others.
	testwait.Until(t, "stalled flows end", func() bool {
		o.survives()
		r, _, count := o.overload()
		if r.Pressure < 0.9 && count["end-stalled"] == 0 { // garbage was all that was too much
			o.group.setLimit(r.Use + r.Use/50)
		}
		return count["end-stalled"] > 0
	})
	testwait.Until(t, "there is room again", func() bool {
		o.survives()
		_, active, _ := o.overload()
		return !active["end-stalled"]
	})
	_, _, count := o.overload()
	if count["end-idle"] > 0 {
		t.Errorf("idle flows have ended, though there were stalled ones: %v", count)
	}
	for _, c := range o.idle {
		mustPing(t, c)
	}
	ended, err := o.admin.Ended(context.Background(), api.Filter{}, false, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ended.Flows {
		if f.Listener == "echo" || f.Cause != "overload" {
			t.Errorf("%s: %s", f.Listener, f.Cause)
		}
	}
	o.hangUp()
	o.group.setLimit(64 << 20)
	testwait.Until(t, "nothing is short any more", func() bool {
		o.survives()
		_, active, _ := o.overload()
		for _, on := range active {
			if on {
				return false
			}
		}
		return true
	})
	mustPing(t, testnet.Dial(t, o.at("echo")))
	close(o.stop)
	if err := <-o.busy; err != nil {
		t.Error(err)
	}
}

// A budget that is as small as the daemon, and one that is exceeded from the start: it serves as far as
// that goes, and is not killed.
func TestOverloadTiny(t *testing.T) {
	o := startOverloaded(t, 32<<20, "pipes: -1")
	for range 10 {
		o.stall(50)
		o.survives()
	}
	o.hangUp()
	testwait.Until(t, "it recovers", func() bool {
		o.survives()
		_, active, _ := o.overload()
		return !active["no-streams"]
	})
	mustPing(t, testnet.Dial(t, o.at("echo")))
	close(o.stop)
	if err := <-o.busy; err != nil {
		t.Error(err)
	}
}
