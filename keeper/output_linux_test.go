package keeper

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/penstock/penstock/internal/sys"
)

// writeEarly is what binaries of tests do before they connect, by their names.
func writeEarly(name string) {
	switch {
	case strings.HasPrefix(name, "greets"):
		fmt.Println("early, to standard output")
		fmt.Fprintln(os.Stderr, "early, to standard error")
	case strings.HasPrefix(name, "fails"):
		fmt.Fprint(os.Stderr, "\nfails: no flag --new\nfails: see fails --help\n")
		os.Exit(80)
	case strings.HasPrefix(name, "panics"):
		panic("before it connects")
	case strings.HasPrefix(name, "junk"):
		os.Stdout.Write([]byte("\x7fELF\x00\x01\xff\xfe\x1b[2J\u202e\n"))
		os.Exit(81)
	case strings.HasPrefix(name, "endless"):
		for {
			if _, err := fmt.Println("endless"); err != nil {
				os.Exit(82)
			}
		}
	case strings.HasPrefix(name, "floods"):
		for {
			fmt.Println("floods")
		}
	case strings.HasPrefix(name, "old") && os.Getenv(outputEnv) != "": // a version that knows nothing of it
		var fd int
		fmt.Sscan(os.Getenv(workerEnv), &fd)
		(&outbox{fd: fd, socket: new(sys.FDBuffer)}).send(appendControl(nil, kindHello, 0, []uint64{protocol, featureAsk}), nil)
		select {}
	}
}

// Whoever asks for an upgrade to a program that does not connect is told the first line that it wrote, and the rest is an
// event.
func TestUpgradeToOtherPrograms(t *testing.T) {
	ls, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	w := r.runningWorker()
	for _, c := range []struct{ binary, reason, event string }{
		{ls, "exit code 0, before it connected to the keeper; it wrote: ask_linux_test.go", "broker_linux.go"},
		{r.binary("fails"), "exit code 80, before it connected to the keeper; it wrote: fails: no flag --new", "fails: see fails --help"},
		{r.binary("panics"), "exit code 2, before it connected to the keeper; it wrote: panic: before it connects", "goroutine 1 "},
		{r.binary("junk"), "exit code 81, before it connected to the keeper; it wrote: ELF", ""},
		{r.binary("endless"), "exit code 82, before it connected to the keeper; it wrote: endless", "endless"},
	} {
		got := w.order(command{Do: "upgrade", Text: c.binary})
		if u := got.Upgrade; u.State != Refused || !strings.HasPrefix(u.Reason, "the new worker ended: "+c.reason) || strings.ContainsFunc(u.Reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %+v", c.binary, u)
		}
		if c.event != "" {
			r.event(c.event)
		}
	}
	w.order(command{Do: "pipe", Key: 1})
}

// A program that writes and does not end is ended, and cannot fill anything.
func TestUpgradeToFlood(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.ConnectTimeout = 500 * time.Millisecond })
	w := r.runningWorker() // under load it may need longer than that: then it is simply started again
	r.settled("it had the time to write", func() bool {
		u := w.order(command{Do: "upgrade", Text: r.binary("floods")}).Upgrade
		const ended = "the new worker ended: signal 9 (not connected in time)"
		if u.State != Refused || u.Reason != ended && u.Reason != ended+"; it wrote: floods" {
			t.Fatalf("%+v", u)
		}
		return u.Reason != ended
	})
}

// What a good worker writes arrives where the keeper's output goes, from its first line on.
func TestOutputOfUpgrade(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Stderr = true })
	w := r.runningWorker()
	w.upgrade(r.binary("greets"))
	for _, line := range []string{"early, to standard output", "early, to standard error", "later, to standard output", "later, to standard error", ": done"} {
		r.event(line)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.seen {
		if strings.Contains(line, "worker-wrote") {
			t.Error(line)
		}
	}
}

// A version that does not know of it has the keeper's output, too.
func TestOutputOfOldVersion(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	next := w.upgrade(r.binary("old"))
	for fd := range 2 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", next.pid, fd+1)); err != nil || strings.Contains(to, "memfd") {
			t.Errorf("descriptor %d leads to %s, %v", fd+1, to, err)
		}
	}
	r.event(": done")
}

// A worker has no descriptor and no variable of that any more.
func TestOutputLeavesNothing(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	before := w.do("fds").FDs
	next := w.upgrade(r.binary("next"))
	if after := next.do("fds").FDs; after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}
