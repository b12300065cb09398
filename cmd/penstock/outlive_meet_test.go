package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// These tests have what an operator asks for meet a worker that is being replaced.

// changed changes the first file of the configuration, of which the new worker may have read an older one.
func (s *steps) changed(was, is string) {
	s.t.Helper()
	text, err := os.ReadFile(s.kept.file)
	if err == nil {
		err = os.WriteFile(s.kept.file, []byte(strings.Replace(string(text), was, is, 1)), 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// drains waits until the daemon that answers has the changed file, and has a flow through it.
func (s *steps) drains(want string) {
	s.t.Helper()
	testwait.Until(s.t, "the running configuration has "+want, func() bool {
		c, err := s.admin.Config(s.ctx())
		return err == nil && strings.Contains(c.Text, want)
	})
	s.flows.answer("end")
}

// A reload that the old worker carries out, after the new one has read the configuration, is carried out by the new one, too.
func TestReloadDuringUpgrade(t *testing.T) {
	t.Parallel()
	s := checking(t, "0")
	s.restoreFile() // for the old worker
	s.changed("", "drain: 7s\n")
	if d, err := s.admin.Reload(s.ctx()); err != nil || len(d.Changes) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	s.configuration()
	s.started(1)
	s.drains("drain: 7s")
}

// A reload that comes when the old worker is asked to hand over is the new one's, be it asked for by the API or by a signal to the keeper or
// to the worker. Whoever asks is told so.
func TestReloadDuringHandOver(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"the API", "a signal to the keeper", "a signal to the worker"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := checking(t, "0")
			s.handingOver()
			s.changed("", "drain: 7s\n")
			told := make(chan error, 1)
			switch by {
			case "the API":
				go func() { _, err := s.admin.Reload(s.ctx()); told <- err }()
			case "a signal to the keeper":
				s.signal(syscall.SIGHUP)
				told <- nil
			default:
				s.to(s.old, syscall.SIGHUP)
				told <- nil
			}
			s.to(s.old, syscall.SIGCONT)
			s.started(1)
			if err := <-told; err != nil {
				// The old worker may end before it has read the request: penstock reload asks again.
				if code, out := s.command("reload"); code != 0 {
					t.Errorf("%v; %d: %s", err, code, out)
				}
			}
			s.drains("drain: 7s")
		})
	}
}

// A reload for which another worker is to take over is not forgotten if this one dies before.
func TestReloadDueAfterCrash(t *testing.T) {
	t.Parallel()
	s := checking(t, "1h")
	s.proving() // no other worker takes over before the end of the trial
	s.started(1)
	s.changed(`"echo:"`, `"`+speak(t, "two").url()+`"`)
	d, err := s.admin.Reload(s.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if !d.NewWorker {
		t.Skip("no sandbox refuses the file")
	}
	s.end(syscall.SIGKILL)
	testwait.Until(t, "the listener has another upstream", func() bool {
		c, err := s.admin.Config(s.ctx())
		return err == nil && !strings.Contains(c.Text, `in.sock", to: "echo:"`)
	})
}

// A drain that the old worker is asked for when it is to hand over happens, be it that one's or the new one's.
func TestDrainDuringHandOver(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"the API", "a signal to the worker"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := checking(t, "0")
			at := s.at("tcp")
			s.handingOver()
			told := make(chan error, 1)
			if by == "the API" {
				go func() { _, err := s.admin.StartDrain(s.ctx()); told <- err }()
			} else {
				s.to(s.old, syscall.SIGTERM)
				told <- nil
			}
			s.to(s.old, syscall.SIGCONT)
			if err := <-told; err != nil { // the old worker may end before it has read the request
				testwait.Until(t, "the new worker is asked", func() bool { _, err := s.admin.StartDrain(s.ctx()); return err == nil })
			}
			testwait.Until(t, "nobody listens any more", func() bool {
				c, err := net.Dial("tcp", at.String())
				if err == nil {
					c.Close()
				}
				return err != nil
			})
		})
	}
}

// penstock upgrade that meets a worker which is being replaced for another reason upgrades the next one, and so does a signal.
func TestUpgradeDuringRestart(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"command", "signal"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			need(t, "mkfifo")
			one, two := speak(t, "one"), speak(t, "two")
			k := runKept(t, "\nlisteners: {a: {listen: \"tcp://127.0.0.1:0\", to: all}}\ngroups: {all: {members: [{name: one, to: \"{0}\"}]}}\n", one.url())
			k.inSandbox()
			s := &steps{kept: k, old: k.worker(), held: k.file}
			var err error
			if s.file, err = os.ReadFile(k.file); err != nil {
				t.Fatal(err)
			}
			c := k.to("a")
			name(t, c)
			s.fifo()
			added := make(chan error, 1)
			go func() {
				_, err := k.admin.AddMember(k.ctx(), "all", api.NewMember{Name: "two", Address: two.url()})
				added <- err
			}()
			s.reads()
			if by == "signal" {
				k.signal(syscall.SIGUSR2)
			}
			upgrade := exec.Command(binary, "upgrade", "--admin", "unix://"+k.dir+"/admin.sock")
			var out bytes.Buffer
			upgrade.Stdout, upgrade.Stderr = &out, &out
			if by == "command" {
				if err := upgrade.Start(); err != nil {
					t.Fatal(err)
				}
				testwait.Until(t, "the command has asked", func() bool {
					events, err := k.admin.Events(k.ctx(), 0)
					return err == nil && slices.ContainsFunc(events.Events, func(e api.Event) bool { return e.Message == "upgrade requested" })
				})
			}
			s.configuration()
			if err := <-added; err != nil {
				t.Error(err)
			}
			if by == "command" {
				if err := upgrade.Wait(); err != nil || !strings.Contains(out.String(), "upgraded to") {
					t.Errorf("%v: %s", err, out.String())
				}
			}
			testwait.Until(t, "the daemon is upgraded", func() bool {
				st, err := k.admin.Status(k.ctx())
				return err == nil && st.Keeper.Last != nil && st.Keeper.Last.Reason == "upgrade"
			})
			mustPing(t, c)
		})
	}
}
