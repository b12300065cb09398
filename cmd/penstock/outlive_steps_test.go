package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// steps is a daemon in the middle of an upgrade, with a flow of each network.
type steps struct {
	*kept
	flows    *flowsOf
	old, new int      // processes
	held     string   // a file of the configuration, the last one
	file     []byte   // what it has
	pipe     *os.File // in its place
}

// checking begins an upgrade. The new worker waits for its configuration, which comes through a named pipe.
func checking(t *testing.T, healthyAfter string) *steps {
	need(t, "mkfifo")
	dir := shortDir(t)
	s := &steps{kept: &kept{configured: &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}}, held: filepath.Join(dir, "more.yaml"), file: []byte("reload: {watch: false}\n")}
	s.write(t, threeListeners+"\nkeeper: {keep-after: 0, max-restart-delay: 100ms, watchdog: never, start-timeout: 10m, healthy-after: "+healthyAfter+"}\n", speak(t, "one").url())
	if err := os.WriteFile(s.held, s.file, 0o644); err != nil {
		t.Fatal(err)
	}
	s.begin(t, exec.Command(binary, "run", "-c", s.kept.file, "-c", s.held))
	s.endWorker(t)
	testwait.Until(t, "the API answers", s.answers)
	s.flows = threeFlows(s.kept)
	testwait.Until(t, "there is one worker", func() bool { s.old = s.worker(); return s.old != 0 })
	s.fifo()
	s.upgradable()
	s.signal(syscall.SIGUSR2)
	s.state("checking")
	s.reads()
	t.Cleanup(func() { // the keeper may be gone
		sendSignal(s.old, syscall.SIGKILL)
		sendSignal(s.new, syscall.SIGKILL)
	})
	return s
}

// fifo makes a file of the configuration a named pipe.
func (s *steps) fifo() {
	s.t.Helper()
	fifo := s.held + ".fifo"
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	if err := os.Rename(fifo, s.held); err != nil {
		s.t.Fatal(err)
	}
	var err error
	if s.pipe, err = os.OpenFile(s.held, os.O_RDWR, 0); err != nil { // so that nobody waits to open it
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.pipe.Close() })
}

// reads waits until there is a new worker, and it reads its configuration.
func (s *steps) reads() {
	s.t.Helper()
	testwait.Until(s.t, "the new worker is there", func() bool {
		for _, pid := range s.children() {
			if pid != s.old {
				s.new = pid
			}
		}
		return s.new != 0
	})
	testwait.Until(s.t, "the new worker reads its configuration", func() bool { return s.has(s.new, s.held) > 0 })
}

// state waits until the keeper has said that the upgrade has reached a state.
func (s *steps) state(name string) {
	s.t.Helper()
	testwait.Until(s.t, "the upgrade is "+name, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, line := range s.lines {
			if line["event"] == "upgrade" && strings.Contains(fmt.Sprint(line["detail"]), ": "+name) {
				return true
			}
		}
		return false
	})
}

// upgradable waits until the keeper knows that the worker is ready, which is told after the API answers: before, it refuses an upgrade.
func (s *steps) upgradable() {
	s.t.Helper()
	testwait.Until(s.t, "the keeper knows that the worker is ready", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.lines, func(line map[string]any) bool { return line["event"] == "worker-ready" })
	})
}

// configuration gives the new worker what it waits for, and puts the file back.
func (s *steps) configuration() {
	s.t.Helper()
	_, err := s.pipe.Write(s.file)
	if err == nil {
		err = s.pipe.Close() // the end of the configuration
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.restoreFile()
}

func (s *steps) restoreFile() {
	s.t.Helper()
	if err := os.WriteFile(s.held+".new", s.file, 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.held+".new", s.held); err != nil {
		s.t.Fatal(err)
	}
}

// handingOver goes on to where the old worker, which is stopped, is asked to hand over.
func (s *steps) handingOver() {
	s.t.Helper()
	s.to(s.old, syscall.SIGSTOP)
	s.configuration()
	s.state("handing-over")
}

// starting goes on to where the old worker has gone, and the new one, which is stopped, is to begin.
func (s *steps) starting() {
	s.t.Helper()
	s.handingOver()
	s.to(s.new, syscall.SIGSTOP)
	s.to(s.old, syscall.SIGCONT)
	s.state("starting")
}

// restoring goes on to where the new worker makes its engine: it has everything.
func (s *steps) restoring() {
	s.t.Helper()
	s.starting()
	s.to(s.new, syscall.SIGCONT)
	testwait.Until(s.t, "the new worker makes its engine", func() bool {
		return s.has(s.new, "anon_inode:[eventpoll]") > 1 // that of Go's runtime is one
	})
}

func (s *steps) proving() {
	s.t.Helper()
	s.configuration()
	s.state("proving")
}

func (s *steps) to(pid int, signal syscall.Signal) {
	s.t.Helper()
	if err := sendSignal(pid, signal); err != nil {
		s.t.Fatal(err)
	}
}

// gone waits for the end of a process whose parent may have gone, too.
func (s *steps) gone(pid int) {
	s.t.Helper()
	testwait.Until(s.t, "the process has ended", func() bool { return !s.lives(pid) })
}

// lives reports whether a process has threads: the first one may have ended while others still have its descriptors.
func (s *steps) lives(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	at := strings.LastIndex(string(stat), ") ")
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	return err == nil && at >= 0 && (stat[at+2] != 'Z' || len(threads) > 1)
}

// has returns how many descriptors of a process are for a file.
func (s *steps) has(pid int, file string) (n int) {
	fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == file {
			n++
		}
	}
	return n
}

// alone checks that a worker without a keeper relays, and says so.
func (s *steps) alone(worker int) {
	s.t.Helper()
	s.line("the keeper is gone: flows end with this process, and it cannot be upgraded")
	s.flows.answer("without a keeper")
	status, err := s.admin.Status(s.ctx())
	if err != nil || status.Keeper == nil || status.Keeper.Up || status.Keeper.Worker != worker || status.Totals.Flows != 3 {
		s.t.Errorf("%+v, %v", status.Keeper, err)
	}
	c := testnet.Dial(s.t, s.at("tcp"))
	name(s.t, c)
	c.Close()
}

// The keeper is killed at each step of an upgrade. Flows go on with the worker that has them. Not tested is the moment when
// the old worker hands over: it learns of the death when the kernel has closed the keeper's sockets, which may be too late; and until the new one has everything, all flows end.
func TestKeeperDiesDuringUpgrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		at   func(*steps)
		old  bool // this worker goes on
	}{
		{"checking", func(*steps) {}, true},
		{"restoring", (*steps).restoring, false},
		{"proving", (*steps).proving, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := checking(t, "1h")
			c.at(s)
			s.signal(syscall.SIGKILL)
			s.gone(s.cmd.Process.Pid) // its sockets are closed
			if c.name == "checking" {
				s.configuration()
			}
			sendSignal(s.old, syscall.SIGCONT)
			if c.old {
				s.gone(s.new)
				s.alone(s.old)
			} else {
				s.gone(s.old)
				s.alone(s.new)
			}
		})
	}
	// The keeper executes the new binary. Its flows go on without it: the worker relays alone, or drains, if the keeper had just told it that
	// it executes, when such an end counts as SIGTERM.
	for i := range 5 {
		t.Run(fmt.Sprint("executing ", i), func(t *testing.T) {
			t.Parallel()
			s := checking(t, "0")
			s.configuration()
			s.state("done")
			time.Sleep(time.Duration(i) * 10 * time.Millisecond) // any moment will do
			s.signal(syscall.SIGKILL)
			s.line("the keeper is gone: flows end with this process, and it cannot be upgraded")
			s.flows.answer("without a keeper")
		})
	}
}

// The old or the new worker is killed at each step of an upgrade. Flows go on with the other, or with the next one.
func TestWorkerDiesDuringUpgrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		at   func(*steps)
		old  bool   // is killed
		want string // reason of the worker that goes on; "": the old one does
	}{
		{"old one, checking", (*steps).restoreFile, true, "crash"},
		{"old one, handing over", (*steps).handingOver, true, "upgrade"},
		{"new one, checking", (*steps).restoreFile, false, ""},
		{"new one, handing over", (*steps).handingOver, false, "rollback"},
		{"new one, starting", (*steps).starting, false, "rollback"},
		{"new one, restoring", (*steps).restoring, false, "rollback"},
		{"new one, proving", (*steps).proving, false, "rollback"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := checking(t, "1h")
			c.at(s)
			if c.old {
				s.to(s.old, syscall.SIGKILL)
			} else {
				s.to(s.new, syscall.SIGKILL)
				s.gone(s.new)
				sendSignal(s.old, syscall.SIGCONT)
			}
			s.flows.answer("after the kill")
			if c.want != "" {
				if w := s.started(1); w.Reason != c.want || w.Restored != 3 || w.TotalLost() != 0 {
					t.Errorf("%+v", w)
				}
			} else if s.worker() != s.old {
				t.Errorf("worker %d, was %d", s.worker(), s.old)
			}
			// And the daemon can be upgraded, unless the keeper is still in the middle of one.
			if c.want != "upgrade" {
				if code, out := s.command("upgrade", "--dry-run"); code != 0 {
					t.Errorf("exit code %d: %s", code, out)
				}
			}
			s.flows.answer("end")
		})
	}
}

// An upgrade can be followed by another one at once: penstock upgrade ends when the keeper says that it is over.
func TestUpgradeAfterUpgrade(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	for i := range 10 {
		if code, out := k.command("upgrade", "--binary", binary); code != 0 || !strings.Contains(out, "3 flows continued, 0 lost") {
			t.Fatalf("upgrade %d: exit code %d: %s", i, code, out)
		}
	}
	f.answer("end")
}
