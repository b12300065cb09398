package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// childEnv has the order for a child process, a childConfig.
const childEnv = "PENSTOCK_KEEPER_TEST"

// patience bounds every wait of a test.
const patience = testnet.Patience

// childConfig is what a keeper process of a test, and its workers, are to do.
type childConfig struct {
	Config  testConfig
	Control string // Unix socket of the test, to which each worker connects
	// LimitAfterCrash is RLIMIT_NOFILE of workers after a crash, if not 0.
	LimitAfterCrash int
	// KeeperLimit is RLIMIT_NOFILE of the keeper from the first ready worker on, if not 0.
	KeeperLimit int
	// Stderr makes the lines of the keeper's standard error, which is its workers' too, lines of the rig.
	Stderr bool
}

// testConfig has the fields of Config that can be sent to a process.
type testConfig struct {
	Binary                                                                 string
	Standby                                                                []string
	ConnectTimeout, ReadyTimeout, HandOverTimeout, Watchdog, Healthy, Good time.Duration
	Backoff, MaxBackoff, NotifyEvery, AskTimeout                           time.Duration
	MaxDeaths, MaxItems                                                    int
	KeepSelf                                                               bool
}

func (c testConfig) config() (to Config) {
	from := reflect.ValueOf(c)
	for i := range from.NumField() {
		reflect.ValueOf(&to).Elem().FieldByName(from.Type().Field(i).Name).Set(from.Field(i))
	}
	return to
}

// runChild is the main function of keepers and workers: as in a program that uses the package.
func runChild(text string) int {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 90
	}
	name := filepath.Base(os.Args[0])
	if exe, err := os.Executable(); err == nil {
		name = filepath.Base(exe)
	}
	if strings.HasPrefix(name, "mute") && os.Getenv(askEnv) == "" && os.Getenv(stateEnv) == "" {
		select {} // a binary that never connects
	}
	if strings.HasPrefix(name, "deaf") && (os.Getenv(askEnv) != "" || os.Getenv(stateEnv) != "") {
		return 91 // a binary that knows nothing of replacing a keeper
	}
	if strings.HasPrefix(name, "halts") && os.Getenv(stateEnv) != "" {
		fmt.Println("no handlers yet") // a keeper that has replaced another one, and gets no further
		if l, err := net.Listen("unix", c.Control+".halt"); err == nil {
			l.Accept()
		}
	}
	if strings.HasPrefix(name, "manual") && os.Getenv(workerEnv) != "" {
		return runManual(name)
	}
	if c.LimitAfterCrash != 0 && os.Getenv(workerEnv) != "" {
		if _, err := os.Stat(c.Control + ".first"); err == nil {
			sys.SetDescriptorLimit(c.LimitAfterCrash)
		}
		os.WriteFile(c.Control+".first", nil, 0o644)
	}
	if os.Getenv(workerEnv) != "" {
		writeEarly(name)
	}
	w, err := Connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 92
	}
	if w != nil {
		if strings.HasPrefix(name, "greets") {
			fmt.Println("later, to standard output")
			fmt.Fprintln(os.Stderr, "later, to standard error")
		}
		return runTestWorker(w, c)
	}
	cfg := c.Config.config()
	cfg.Log = func(e Event) {
		if e.Kind == WorkerReady && c.KeeperLimit != 0 {
			sys.SetDescriptorLimit(c.KeeperLimit)
		}
		fmt.Println("event", e.Kind, e)
	}
	cfg.Notify = func(s string) { fmt.Println("notify", strings.ReplaceAll(s, "\n", " ")) }
	cfg.Broker = testBroker
	code, err := Run(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// command is what a test asks of a worker, reply the answer.
type command struct {
	Do     string
	Key    uint64
	N      int
	Label  string
	Text   string
	DryRun bool
}

type reply struct {
	Err     string
	PID     int
	Start   Start
	Items   []Item
	Stats   Stats
	Upgrade Upgrade
	Steps   []string
	Text    string
	FDs     int
	Took    time.Duration
	Missing int
}

// runTestWorker does what the test orders.
func runTestWorker(w *Worker, c childConfig) int {
	conn, err := net.Dial("unix", c.Control)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 93
	}
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	out.Encode(reply{PID: os.Getpid(), Start: w.Start()})
	var handOver = make(chan struct{}, 1)
	var handler bool
	var held []Item
	open := make(map[uint64][]*os.File)
	for {
		var o command
		if err := in.Decode(&o); err != nil {
			select {
			case <-w.Lost():
				return 0
			default:
				select {} // the test has ended, or this worker is to hang
			}
		}
		var r reply
		fail := func(err error) {
			if err != nil && r.Err == "" {
				r.Err = err.Error()
			}
		}
		switch o.Do {
		case "held":
			held = append(held, w.Held()...)
			r.Items = held
			for _, i := range r.Items {
				if i.FDs == nil {
					r.Missing++
				}
			}
			if len(r.Items) > 100 {
				r.Items = r.Items[:100]
			}
			r.FDs = len(held)
		case "read": // what a held pipe contains
			for _, item := range held {
				if item.Key[0] == o.Key {
					b := make([]byte, 100)
					n, e := sys.Linux{}.ReadPipe(item.FDs[0], b)
					if e != 0 {
						fail(e)
					}
					r.Text = string(b[:max(n, 0)])
				}
			}
		case "pipe": // hold a pipe with a text in it
			pr, pw, err := os.Pipe()
			fail(err)
			pw.WriteString(o.Text)
			open[o.Key] = []*os.File{pr, pw}
			fail(w.Hold([2]uint64{o.Key, 1}, o.Label, []int{int(pr.Fd()), int(pw.Fd())}))
			if r.Err == "" {
				fail(flush(w))
			}
		case "many": // hold N pipes
			began := time.Now()
			for i := range o.N {
				pr, pw, _, e := sys.Linux{}.Pipe(4096)
				if e != 0 {
					fail(e)
				}
				p := []int{pr, pw}
				for {
					err := w.Hold([2]uint64{o.Key + uint64(i), 1}, "", p)
					if err != ErrBusy {
						fail(err)
						break
					}
					fail(flush(w))
				}
				if i%64 == 63 || i == o.N-1 {
					fail(flush(w))
				}
				if o.Label == "close" {
					closeAll(p)
				}
			}
			r.Took = time.Since(began)
		case "drop":
			for i := range max(o.N, 1) {
				w.Drop([2]uint64{o.Key + uint64(i), 1})
			}
			if o.Label != "no flush" {
				fail(flush(w))
			}
		case "prepared":
			fail(w.Prepared(o.Text))
			r.Start = w.Start()
		case "ready":
			fail(w.Ready())
			go func() {
				for range time.Tick(20 * time.Millisecond) {
					w.Alive()
				}
			}()
		case "ready-mute":
			fail(w.Ready())
		case "start":
			r.Start = w.Start()
		case "notify":
			w.Notify(o.Text)
		case "handler":
			handler = true
			w.OnHandOver(func() { handOver <- struct{}{} })
		case "wait-hand-over":
			if handler {
				<-handOver
			}
		case "stay":
			fail(w.Stay(o.Text))
		case "handed-over":
			fail(w.HandedOver())
		case "upgrade":
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			r.Upgrade, err = w.Upgrade(ctx, o.Text, o.DryRun, func(u Upgrade) { r.Steps = append(r.Steps, u.State.String()) })
			cancel()
			fail(err)
		case "upgrade-async":
			go func() {
				if u, err := w.Upgrade(context.Background(), o.Text, o.DryRun, nil); err == nil && u.State == Refused {
					fmt.Fprintf(os.Stderr, "the upgrade is refused: %s\n", u.Reason) // the keeper does not log what it answers
				}
			}()
		case "restart":
			fail(w.Restart())
		case "last-upgrade":
			r.Upgrade = w.LastUpgrade()
		case "stats":
			r.Stats = w.Stats()
		case "policy":
			fail(w.SetPolicy(o.Text))
		case "inherited":
			r.Text = w.Policy()
		case "ask":
			r.Text = ask(w, o.Text)
		case "lost":
			<-w.Lost()
		case "exit":
			if o.Text == "exiting" {
				w.Exiting()
			}
			os.Exit(o.N)
		case "hang":
			select {}
		case "fds":
			r.FDs = countFDs(os.Getpid())
		case "catch":
			signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGINT)
		case "signal": // waits for a signal
			r.Text = (<-signals).String()
		case "drop-held":
			for _, item := range held {
				closeAll(item.FDs)
				w.Drop(item.Key)
			}
			held = nil
			fail(flush(w))
		case "same": // hold one pipe N times, as fast as possible
			pr, pw, _, _ := sys.Linux{}.Pipe(4096)
			for i := range o.N {
				var err error
				testwait.For(func() bool { // until the keeper has said that it has dropped the last ones
					err = w.Hold([2]uint64{o.Key + uint64(i), 1}, "", []int{pr, pw})
					return err != ErrFull
				})
				fail(err)
				if i%126 == 125 || i == o.N-1 {
					fail(flush(w))
				}
			}
			closeAll([]int{pr, pw})
		case "odd":
			fail(holdOdd(w))
		case "bad":
			fail(holdBad(w))
		case "lie":
			fail(lie(w, o.Text))
		case "crowd": // holds until the keeper, which is stopped, has too much to read
			sys.SetDescriptorLimit(100)
			pr, pw, _, _ := sys.Linux{}.Pipe(4096)
			fds := slices.Repeat([]int{pr, pw}, MaxDescriptors/2)
			for i := 0; ; i++ {
				fail(w.Hold([2]uint64{o.Key + uint64(i), 1}, "", fds))
				if err := w.Flush(); err == ErrBusy {
					r.FDs = i + 1
					break
				} else if err != nil || i > 10_000 {
					fail(fmt.Errorf("item %d: %v", i, err))
					break
				}
			}
		case "conns": // holds a listener N times
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				fail(err)
				break
			}
			for i := range o.N {
				if err := w.HoldConn([2]uint64{o.Key + uint64(i), 1}, "listener", l.(syscall.Conn)); err != nil {
					fail(err)
					break
				}
			}
			l.Close()
			r.Text = l.Addr().String()
			fail(w.HoldConn([2]uint64{1, 1}, "closed", l.(syscall.Conn)))
		case "flush":
			fail(flush(w))
		case "churn": // holds and drops until it dies; each line says that one more pipe is held
			for i := uint64(0); ; i++ {
				pr, pw, _, e := sys.Linux{}.Pipe(4096)
				if e != 0 {
					select {}
				}
				w.Hold([2]uint64{o.Key + i, 1}, "", []int{pr, pw})
				if flush(w) != nil {
					select {}
				}
				if i%3 != 0 {
					w.Drop([2]uint64{o.Key + i, 1})
					closeAll([]int{pr, pw})
				} else {
					out.Encode(reply{})
				}
			}
		case "memory":
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			r.N(int(m.HeapAlloc))
		default:
			fail(errors.New("unknown command " + o.Do))
		}
		if err := out.Encode(r); err != nil {
			select {}
		}
	}
}

func (r *reply) N(n int) { r.FDs = n }

var signals = make(chan os.Signal, 10)

// flush is what a worker does that may wait.
func flush(w *Worker) error {
	var err error
	testwait.For(func() bool { err = w.Flush(); return err != ErrBusy })
	return err
}

func countFDs(pid int) int {
	names, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return -1
	}
	return len(names)
}

// rig is a keeper process, and the workers that have connected to the test.
type rig struct {
	testing.TB
	dir     string
	l       net.Listener
	cmd     *exec.Cmd
	lines   chan string
	mu      sync.Mutex
	seen    []string
	ended   chan struct{}
	code    int
	workers []*testWorker
}

type testWorker struct {
	rig  *rig
	pid  int
	out  *json.Encoder
	in   *json.Decoder
	conn net.Conn
	Start
}

// newRig starts a keeper with short times, except for what change sets.
func newRig(tb testing.TB, change ...func(*childConfig)) *rig {
	tb.Helper()
	r := &rig{TB: tb, dir: tb.TempDir(), lines: make(chan string, 10000), ended: make(chan struct{})}
	c := childConfig{Control: filepath.Join(r.dir, "control"), Config: testConfig{
		Standby: []string{"early"}, Backoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		ConnectTimeout: patience, ReadyTimeout: patience, HandOverTimeout: patience, Watchdog: patience, Healthy: -1, Good: time.Hour, KeepSelf: true,
	}}
	c.Config.Binary = r.binary("worker")
	for _, f := range change {
		f(&c)
	}
	var err error
	if r.l, err = net.Listen("unix", c.Control); err != nil {
		tb.Fatal(err)
	}
	text, _ := json.Marshal(c)
	r.cmd = exec.Command(r.binary("keeper"))
	r.cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	r.cmd.Stderr = os.Stderr
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if c.Stderr {
		r.cmd.Stderr = r.cmd.Stdout
	}
	if err := r.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			r.mu.Lock()
			r.seen = append(r.seen, s.Text())
			r.mu.Unlock()
			r.lines <- s.Text()
		}
	}()
	go func() {
		if state, err := r.cmd.Process.Wait(); err == nil {
			r.code = state.ExitCode()
		}
		close(r.ended)
	}()
	tb.Cleanup(func() {
		for _, w := range r.workers {
			w.conn.Close()
		}
		r.l.Close()
		r.cmd.Process.Kill()
		<-r.ended
		r.killWorkers() // or one of them would keep the pipe open
		<-read
		if tb.Failed() {
			r.mu.Lock()
			tb.Log("keeper said:\n" + strings.Join(r.seen, "\n"))
			r.mu.Unlock()
		}
	})
	return r
}

// killWorkers kills what the keeper has left.
func (r *rig) killWorkers() {
	processes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range processes {
		if exe, err := os.Readlink(p); err == nil && strings.HasPrefix(exe, r.dir+"/") {
			pid, _ := strconv.Atoi(strings.Split(p, "/")[2])
			sys.Signal(pid, syscall.SIGKILL)
		}
	}
}

// binary returns the path of this test binary under another name, which decides how it acts.
func (r *rig) binary(name string) string {
	path := filepath.Join(r.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	exe, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	if os.Link(exe, path) != nil {
		b, err := os.ReadFile(exe)
		if err == nil {
			err = os.WriteFile(path, b, 0o755)
		}
		if err != nil {
			r.Fatal(err)
		}
	}
	return path
}

// worker waits for the next worker that connects.
func (r *rig) worker() *testWorker {
	r.Helper()
	r.l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	conn, err := r.l.Accept()
	if err != nil {
		r.Fatalf("no worker: %v", err)
	}
	w := &testWorker{rig: r, conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
	r.workers = append(r.workers, w)
	first := w.reply()
	w.pid, w.Start = first.PID, first.Start
	return w
}

// runningWorker waits for the next worker and makes it ready.
func (r *rig) runningWorker() *testWorker {
	r.Helper()
	w := r.worker()
	w.Start = w.do("prepared").Start
	w.do("ready")
	return w
}

func (w *testWorker) reply() (x reply) {
	w.rig.Helper()
	w.conn.SetReadDeadline(time.Now().Add(patience))
	if err := w.in.Decode(&x); err != nil {
		w.rig.Fatalf("worker %d: %v", w.pid, err)
	}
	if x.Err != "" {
		w.rig.Fatalf("worker %d: %s", w.pid, x.Err)
	}
	return x
}

func (w *testWorker) send(o command) {
	w.rig.Helper()
	if err := w.out.Encode(o); err != nil {
		w.rig.Fatalf("worker %d: %v", w.pid, err)
	}
}

func (w *testWorker) order(o command) reply {
	w.rig.Helper()
	w.send(o)
	return w.reply()
}

func (w *testWorker) do(what string) reply {
	w.rig.Helper()
	return w.order(command{Do: what})
}

func (w *testWorker) kill() {
	w.rig.Helper()
	if e := sys.Signal(w.pid, syscall.SIGKILL); e != 0 {
		w.rig.Fatal(e)
	}
}

// event waits until the keeper has said a line that contains all texts.
func (r *rig) event(texts ...string) string {
	r.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-r.lines:
			all := true
			for _, s := range texts {
				all = all && strings.Contains(line, s)
			}
			if all {
				return line
			}
		case <-timeout:
			r.Fatalf("the keeper did not say %q", texts)
		}
	}
}

// exit waits for the end of the keeper and returns its exit code.
func (r *rig) exit() int {
	r.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.Fatal("the keeper does not end")
	}
	return r.code
}

// settled waits until f returns true.
func (r *rig) settled(what string, f func() bool) {
	r.Helper()
	testwait.Until(r, what, f)
}

func runManual(string) int { return 94 }

func itoa(n int) string { return strconv.Itoa(n) }

func closeAll(fds []int) {
	for _, fd := range fds {
		sys.Linux{}.Close(fd)
	}
}
