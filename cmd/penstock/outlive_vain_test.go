package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// In these tests a worker takes over, and cannot start. The next one knows all that the one before had, and does not ask for one more.

// starts returns how often workers were started for a reason.
func (k *kept) starts(reason string) int64 {
	k.t.Helper()
	for _, s := range k.status(k.t).Keeper.Starts {
		if s.Reason == reason {
			return s.Count
		}
	}
	return 0
}

const oneMember = `
reload: {watch: false}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all} {1}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`

// A reload that only another worker can carry out, and that none can, has failed. It is not tried again and again.
func TestReloadInVain(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	k := runKept(t, oneMember, one.url(), "")
	k.inSandbox()
	c := k.to("a")
	name(t, c)
	k.settled(1)
	taken := testnet.Listen(t, "tcp4")
	k.write(t, oneMember+keeperOfTests, two.url(), `, b: {listen: "`+url(taken.Addr())+`", to: all}`)
	if d, err := k.admin.Reload(k.ctx()); err != nil || !d.NewWorker {
		t.Fatalf("%+v, %v", d, err)
	}
	var failed *api.FailedReload
	testwait.Until(t, "the reload is known to have failed", func() bool {
		s, err := k.admin.Status(k.ctx())
		if err == nil {
			failed = s.Config.Failed
		}
		return failed != nil
	})
	if text := failed.Errors[0].Message; !strings.Contains(text, "another worker was to take over, and could not") || !strings.Contains(text, "address already in use") {
		t.Error(text)
	}
	if n := name(t, k.to("a")); n != "one" {
		t.Errorf("served by %q", n)
	}
	taken.Close()
	testwait.Until(t, "the address is free", func() bool { // a process that another test has just started may have a copy of the listener
		k.admin.Reload(k.ctx())
		l, err := k.admin.Listeners(k.ctx())
		return err == nil && len(l.Listeners) == 2
	})
	if n := name(t, k.to("a")); n != "two" {
		t.Errorf("served by %q", n)
	}
	mustPing(t, c)
}

// The keys of a reload that only another worker can change, and that none has changed, because none could take over, are known to have failed.
func TestKeysInVain(t *testing.T) {
	t.Parallel()
	one := speak(t, "one")
	k := runKept(t, oneMember+"engine: {loops: 1}\n", one.url(), "")
	k.signal(syscall.SIGSTOP) // no worker is started before its configuration is broken
	k.write(t, oneMember+keeperOfTests+"\nengine: {loops: 2}\n", one.url(), "")
	if d, err := k.admin.Reload(k.ctx()); err != nil || !d.NewWorker || !d.Applied {
		t.Errorf("%+v, %v", d, err)
	}
	k.write(t, "nonsense\n")
	k.signal(syscall.SIGCONT)
	var failed *api.FailedReload
	testwait.Until(t, "the reload is known to have failed", func() bool {
		s, err := k.admin.Status(k.ctx())
		if err == nil {
			failed = s.Config.Failed
		}
		return failed != nil
	})
	if text := failed.Errors[0].Message; !strings.HasPrefix(text, "engine.loops not changed: another worker was to take over, and could not: the new worker ended: exit code 2") {
		t.Error(text)
	}
	k.write(t, oneMember+keeperOfTests+"\nengine: {loops: 2}\n", one.url(), "")
	k.replaced(func(int) { k.reload() })
	if s, err := k.admin.Status(k.ctx()); err != nil || s.Config.Failed != nil || len(s.Loops) != 2 {
		t.Errorf("%+v, %v", s.Config, err)
	}
}

// A member that only another worker can have, and that none can, because none can start, is left out.
func TestMemberInVain(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	k := runKept(t, oneMember, one.url(), "")
	k.inSandbox()
	c := k.to("a")
	name(t, c)
	k.settled(1)
	taken := testnet.Listen(t, "tcp4")
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	k.write(t, oneMember+keeperOfTests, one.url(), `, b: {listen: "`+url(taken.Addr())+`", to: all}`)
	if m, err := k.admin.AddMember(k.ctx(), "all", api.NewMember{Name: "two", Address: two.url()}); err != nil || !m.NewWorker {
		t.Fatalf("%+v, %v", m, err)
	}
	k.line("members that were added or moved are left out, because the sandbox does not let this worker connect to them, and no other one could take over: exit code 1 (" +
		"listener b: relay: listen on " + url(taken.Addr()) + ": address already in use (another process listens there: ss -lpn 'sport = " + port + "'))")
	if n := k.starts("crash"); n != 1 {
		t.Errorf("%d workers have crashed", n)
	}
	mustPing(t, c)
}

// What operators have changed about members is not lost if the next worker hangs before it has a configuration, and is killed.
func TestStateOutlivesHungWorker(t *testing.T) {
	t.Parallel()
	need(t, "mkfifo")
	one, two := speak(t, "one"), speak(t, "two")
	dir := shortDir(t)
	cert, key := testcerts.Authority(t, "ca").Issue(t, "a.example").Write(t, dir, "a")
	s := &steps{kept: &kept{configured: &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}}, held: filepath.Join(dir, "more.yaml"), file: []byte("reload: {watch: false}\n")}
	s.write(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}, b: {listen: "tcp://127.0.0.1:0", to: all, tls: {certificates: [{certificate: "{2}", key: "{3}"}]}}}
groups: {all: {members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
keeper: {keep-after: 0, watchdog: never}
`, one.url(), two.url(), cert, key)
	if err := os.WriteFile(s.held, s.file, 0o644); err != nil {
		t.Fatal(err)
	}
	s.begin(t, exec.Command(binary, "run", "-c", s.kept.file, "-c", s.held))
	s.endWorker(t)
	s.showLog()
	testwait.Until(t, "the API answers", s.answers)
	for member, change := range map[string]api.MemberChange{"one": {State: "drain"}, "two": {Weight: new(7)}} {
		if _, err := s.admin.SetMember(s.ctx(), "all", member, change); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "there is one worker", func() bool { s.old = s.worker(); return s.old != 0 })
	s.fifo()
	s.upgradable()
	s.signal(syscall.SIGUSR2)
	s.state("checking")
	s.reads()
	s.handingOver()
	f, err := os.OpenFile(cert, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := testkernel.Lease(f); err != nil {
		t.Skip(err)
	}
	s.to(s.old, syscall.SIGCONT)
	s.state("rolled-back")
	f.Close()
	testwait.Until(t, "another worker answers", s.answers)
	if n := s.starts("rollback"); n != 1 {
		t.Errorf("%d workers after a rollback", n)
	}
	g, err := s.admin.Group(s.ctx(), "all")
	if err != nil || len(g.Members) != 2 || g.Members[0].State != "drained" || g.Members[1].Weight != 7 {
		t.Errorf("%+v, %v", g.Members, err)
	}
}
