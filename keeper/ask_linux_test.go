package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
)

// testBroker opens files beneath the policy, which is a folder. Some requests are for tests.
func testBroker(policy, request string) (int, error) {
	switch what, path, _ := strings.Cut(request, " "); {
	case what == "panic":
		panic("a mistake")
	case what == "nothing":
		return -1, nil
	case what == "wait": // until a file is there
		testwait.For(func() bool { _, err := os.Stat(path); return err == nil })
		return -1, errors.New("waited")
	case what != "open" || filepath.Dir(path) != policy:
		return -1, fmt.Errorf("not allowed: %w", syscall.EACCES)
	default:
		f, err := os.Open(path)
		if err != nil {
			return -1, err
		}
		defer f.Close()
		fd, e := sys.Dup(int(f.Fd()))
		if e != 0 {
			return -1, e
		}
		return fd, nil
	}
}

// ask makes a worker ask, and returns what is in the file that it gets, or the error.
func ask(w *Worker, request string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	fd, err := w.Ask(ctx, request)
	var refused *AskError
	switch {
	case errors.As(err, &refused):
		return fmt.Sprintf("refused %d: %s", int(refused.Errno), refused.Text)
	case err != nil:
		return err.Error()
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (w *testWorker) ask(request, want string) {
	w.rig.Helper()
	if got := w.order(command{Do: "ask", Text: request}).Text; got != want {
		w.rig.Errorf("worker %d asked %q: %q, want %q", w.pid, request, got, want)
	}
}

// A worker gets what its policy has, and nothing else, whatever the broker does.
func TestAsk(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.AskTimeout = patience })
	os.WriteFile(filepath.Join(r.dir, "file"), []byte("text"), 0o600)
	w := r.runningWorker()
	w.ask("open "+r.dir+"/file", "refused 1: this worker has no policy")
	w.order(command{Do: "policy", Text: r.dir})
	w.ask("open "+r.dir+"/file", "text")
	w.ask("open /etc/passwd", "refused 13: not allowed: permission denied")
	w.ask("open "+r.dir+"/none", "refused 2: open "+r.dir+"/none: no such file or directory")
	w.ask("panic", "refused 0: the broker failed")
	w.ask("nothing", "refused 9: the broker returned no descriptor")
	w.ask(strings.Repeat("x", MaxRequest), "refused 13: not allowed: permission denied")
	w.ask(strings.Repeat("x", MaxRequest+1), ErrPolicy.Error())
	before := countFDs(r.cmd.Process.Pid)
	for range 50 {
		w.ask("open "+r.dir+"/file", "text")
	}
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) <= before })
}

// All goroutines of the broker hang: the keeper does its other work, and goes on when they do.
func TestAskInVain(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.AskTimeout = 100 * time.Millisecond })
	w := r.runningWorker()
	w.order(command{Do: "policy", Text: r.dir})
	before := countFDs(r.cmd.Process.Pid)
	for range maxBrokers + 2 {
		w.ask("wait "+r.dir+"/go", "refused 110: the keeper has no answer in time: connection timed out")
	}
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	os.WriteFile(filepath.Join(r.dir, "go"), []byte("text"), 0o600)
	r.settled("the broker", func() bool { return w.order(command{Do: "ask", Text: "open " + r.dir + "/go"}).Text == "text" })
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) <= before+2 })
}

// The next worker knows the policy of the one before, and cannot be made to trust one that was set later.
func TestPolicyOfTheWorkerBefore(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf, c.Config.AskTimeout = false, patience })
	os.WriteFile(filepath.Join(r.dir, "file"), []byte("text"), 0o600)
	long := r.dir + strings.Repeat("/.", 60_000) // more than one message
	w := r.worker()
	if got := w.do("inherited").Text; got != "" {
		t.Errorf("the first worker has the policy %q", got)
	}
	w.order(command{Do: "policy", Text: long})
	w.do("prepared")
	w.do("ready")
	w.send(command{Do: "lie", Text: "second policy"})
	r.event("worker-lied", "a second policy")

	w = r.worker()
	if got := w.do("inherited").Text; got != long {
		t.Errorf("the policy has %d bytes, want %d", len(got), len(long))
	}
	w.order(command{Do: "policy", Text: r.dir})
	w.kill() // before it was ready: its policy is forgotten
	w = r.worker()
	if got := w.do("inherited").Text; got != long {
		t.Errorf("the policy has %d bytes, want %d", len(got), len(long))
	}
	w.order(command{Do: "policy", Text: r.dir})
	w.do("prepared")
	w.do("ready")

	// On standby, and while it hands over, a worker may ask. Each has its own policy.
	os.WriteFile(filepath.Join(r.dir, "next"), nil, 0o700)
	w.do("handler")
	w.order(command{Do: "upgrade-async", Text: r.binary("other")})
	next := r.worker()
	if got := next.do("inherited").Text; got != r.dir {
		t.Errorf("on standby: policy %q", got)
	}
	next.order(command{Do: "policy", Text: "/nowhere"})
	next.ask("open "+r.dir+"/file", "refused 13: not allowed: permission denied")
	w.ask("open "+r.dir+"/file", "text")
	next.send(command{Do: "prepared"})
	w.do("wait-hand-over")
	w.ask("open "+r.dir+"/file", "text")
	w.do("handed-over")
	w.send(command{Do: "exit"})
	next.reply()
	next.do("ready")
	r.event("keeper-upgraded")
	// The keeper is another program now, and knows the policy.
	next.ask("open "+r.dir+"/file", "refused 13: not allowed: permission denied")
	next.ask("open /nowhere/file", "refused 2: open /nowhere/file: no such file or directory")
	next.kill()
	if got := r.worker().do("inherited").Text; got != "/nowhere" {
		t.Errorf("policy %q", got)
	}
}

// A policy that the keeper has stored is used, and the keeper waits for open answers before it is replaced.
func TestAskWhileKeeperIsReplaced(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf, c.Config.AskTimeout = false, patience })
	w := r.worker()
	w.order(command{Do: "policy", Text: r.dir})
	w.do("prepared")
	w.do("ready")
	w = w.upgradeWhile(r.binary("next"), func(next *testWorker) {
		next.order(command{Do: "policy"})
		next.send(command{Do: "ask", Text: "wait " + r.dir + "/go"})
	})
	os.WriteFile(filepath.Join(r.dir, "go"), []byte("text"), 0o600)
	if got := w.reply().Text; got != "refused 0: waited" {
		t.Errorf("%q", got)
	}
	r.event("keeper-upgraded")
	w.ask("open "+r.dir+"/go", "text")
}

// upgradeWhile is upgrade, and calls f when the new worker is ready.
func (w *testWorker) upgradeWhile(binary string, f func(next *testWorker)) *testWorker {
	w.rig.Helper()
	next := w.upgrade(binary)
	f(next)
	return next
}

// A worker cannot make the keeper run any binary with its privileges.
func TestCheckBinary(t *testing.T) {
	var asked []string
	w := newWorld(t, Config{Broker: noBroker, CheckBinary: func(policy, path string, fd int) error {
		asked = append(asked, policy+" "+path)
		if path != "good" {
			return errors.New("not this one")
		}
		return nil
	}}, 100)
	w.sane(1)
	w.say(1, message{kind: kindPolicy, words: []uint64{0, 0}, texts: []string{"policy"}})
	for range 3 {
		w.sane(1)
	}
	upgrade := func(path string) message {
		w.say(1, message{kind: kindUpgrade, words: []uint64{7, 1}, texts: []string{path}})
		sent := w.procs[1].sent
		return sent[len(sent)-1]
	}
	if m := upgrade("bad"); State(m.word(2)) != Refused || m.text(2) != "not this one" {
		t.Errorf("%+v", m)
	}
	for _, path := range []string{"good", ""} { // dry runs
		if m := upgrade(path); State(m.word(2)) != Checking {
			t.Errorf("%q: %+v", path, m)
		}
		w.die(w.lastID, Death{Code: 1})
	}
	if got := strings.Join(asked, ", "); got != "policy bad, policy good" {
		t.Errorf("asked: %s", got)
	}
}

// A worker of before gets no message that it does not know, and a keeper of before neither.
func TestAskOtherVersions(t *testing.T) {
	w := newWorld(t, Config{Broker: noBroker}, 100)
	w.m.policy = "policy"
	w.m.active.policy = "policy"
	w.say(1, message{kind: kindHello, words: []uint64{protocol}})
	for _, m := range w.procs[1].sent {
		if m.kind > kindUpgraded {
			t.Errorf("a worker of before got message %d", m.kind)
		}
	}
	w.say(1, message{kind: kindPolicy})
	if !w.saw("worker-lied") {
		t.Error("a worker that does not know policies has set one")
	}
	w.die(1, Death{Signal: 9})
	w.ready(2)
	if got := w.m.policy; got != "policy" {
		t.Errorf("the policy is %q", got)
	}

	ours, theirs, e := sys.Pair()
	if e != 0 {
		t.Fatal(e)
	}
	old, err := newWorker(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var fb sys.FDBuffer
	receive := func() (m message) {
		b := make([]byte, maxMessage)
		for {
			if n, _, _, e := fb.Recv(ours, b, nil); e == 0 {
				m.parse(b[:n])
				return m
			}
		}
	}
	receive()
	welcome := make([]uint64, startWords+5)
	welcome[0] = protocol
	fb.Send(ours, appendControl(nil, kindWelcome, 0, welcome, ""), nil)
	fb.Send(ours, appendHeader(nil, kindMark, 0), nil)
	<-old.mark
	if err := old.SetPolicy("x"); err != errors.ErrUnsupported || old.MayAsk() {
		t.Error(err)
	}
	if _, err := old.Ask(context.Background(), "x"); err != errors.ErrUnsupported {
		t.Error(err)
	}
	sys.Linux{}.Close(ours)
	<-old.Lost()
}

// Many goroutines ask at once; some of them do not wait for the answer. No descriptor is left over, and none is given to two.
func TestAskAtOnce(t *testing.T) {
	ours, theirs, e := sys.Pair()
	if e != 0 {
		t.Fatal(e)
	}
	w, err := newWorker(theirs)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // a keeper that answers in another order
		defer close(done)
		f := os.NewFile(uintptr(ours), "keeper")
		defer f.Close()
		raw, _ := f.SyscallConn()
		var fb sys.FDBuffer
		var m message
		var unanswered []uint32
		b := make([]byte, maxMessage)
		words := append(make([]uint64, startWords+5), featureAsk)
		null, _ := os.Open(os.DevNull)
		defer null.Close()
		send := func(b []byte, fds ...int) {
			raw.Write(func(uintptr) bool { return fb.Send(ours, b, fds) != sys.EAGAIN })
		}
		for {
			n := 0
			err := raw.Read(func(uintptr) bool {
				var e sys.Errno
				n, _, _, e = fb.Recv(ours, b, nil)
				return e != sys.EAGAIN
			})
			if err != nil || n == 0 || m.parse(b[:n]) != nil {
				return
			}
			switch m.kind {
			case kindHello:
				send(appendControl(nil, kindWelcome, 0, words, ""))
				send(appendHeader(nil, kindMark, 0))
			case kindAsk:
				if m.text(0) != "last" {
					unanswered = append(unanswered, m.seq)
				}
				if len(unanswered) > maxAsks {
					t.Errorf("%d requests at a time", len(unanswered))
				}
				if len(unanswered) < 8 && m.text(0) != "last" {
					continue
				}
				slices.Reverse(unanswered)
				for _, seq := range unanswered {
					send(appendControl(nil, kindAnswer, seq, []uint64{1, 0}), int(null.Fd()))
				}
				unanswered = unanswered[:0]
				if m.text(0) == "last" {
					send(refusal(m.seq, 0, "last"))
				}
			}
		}
	}()
	<-w.mark
	var mu sync.Mutex
	open := make(map[int]bool)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%5 == 0 {
				time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
			}
			fd, err := w.Ask(ctx, "x")
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if open[fd] {
				t.Errorf("descriptor %d was given to two", fd)
			}
			open[fd] = true
		})
	}
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()
	for end := time.Now().Add(patience); ; {
		w.Ask(context.Background(), "last")
		select {
		case <-finished:
		default:
			if time.Now().After(end) {
				t.Fatal("not all were answered")
			}
			continue
		}
		break
	}
	w.Ask(context.Background(), "last") // after it, everything was answered
	for fd := range open {
		sys.Linux{}.Close(fd)
	}
	w.file.SetReadDeadline(longAgo)
	<-w.Lost()
	<-done
}
