package console

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
)

// asProgram makes the test's own binary run a command line, as penstock would.
const asProgram = "PENSTOCK_TEST_COMMAND"

// terminal is a command at a terminal, and all that was written to it.
type terminal struct {
	t    *testing.T
	file *os.File
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // something was written

	columns, rows uint16
	done          chan error
}

func atTerminal(t *testing.T, columns, rows uint16, env []string, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8", asProgram+"="+strings.Join(args, "\n")), env...)
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, file: file, more: make(chan struct{}, 1), done: make(chan error, 1), columns: columns, rows: rows}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := file.Read(b)
			term.mu.Lock()
			term.text.Write(b[:n])
			term.mu.Unlock()
			select {
			case term.more <- struct{}{}:
			default:
			}
			if err != nil { // EIO: the other side is closed
				return
			}
		}
	}()
	go func() { term.done <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-read
		file.Close()
	})
	return term
}

// written is all text so far, without styles and movements.
func (term *terminal) written() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return ansi.Strip(term.text.String())
}

// forget makes see look at what comes from now on.
func (term *terminal) forget() {
	term.mu.Lock()
	defer term.mu.Unlock()
	term.text.Reset()
}

// see waits for a text. Only cells that change are written, so now and then the
// size is changed a little, after which all of them are.
func (term *terminal) see(text string) {
	term.t.Helper()
	deadline := time.After(eventually)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for !strings.Contains(term.written(), text) {
		select {
		case <-term.more:
		case <-again.C:
			term.columns ^= 1
			if err := pty.Setsize(term.file, &pty.Winsize{Rows: term.rows, Cols: term.columns}); err != nil {
				term.t.Fatal(err)
			}
		case <-deadline:
			term.t.Fatalf("no %q in %q", text, term.written())
		}
	}
}

func (term *terminal) press(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.file, keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) end() {
	term.t.Helper()
	select {
	case err := <-term.done:
		if err != nil {
			term.t.Errorf("%v, after %q", err, term.written())
		}
	case <-time.After(eventually):
		term.t.Fatal("it does not end")
	}
}

// An operator at a terminal: panes, a filter, a flow that is ended, a daemon that
// is restarted, a terminal that changes its size.
func TestTopAtTerminal(t *testing.T) {
	r := newRig(t, newDaemon())
	term := atTerminal(t, 100, 30, nil, "top", "--admin", r.admin)
	term.see("v1.2.3")
	term.see("LISTENER")
	term.press("2")
	term.see("flows by rate")
	term.see("192.0.2.10:50000")
	term.press("/192.0.2.11\r")
	term.see("1 of 3 flows")
	term.press("K")
	term.see("end flow 2 of 192.0.2.11:50001? y/n")
	term.press("y")
	term.see("ended flow 2")
	if _, there := r.Flow(t.Context(), 2); there {
		t.Error("the flow is still there")
	}
	term.press("3")
	term.see("connection refused")
	term.columns, term.rows = 60, 20
	r.stop()
	term.see("reconnecting")
	term.forget()
	r.start()
	term.see("ready")
	term.press("q")
	term.end()
}

func TestTopOnce(t *testing.T) {
	r := newRig(t, newDaemon())
	contains(t, r.good("top", "--once"), "v1.2.3", "B/s down", "LISTENER", "GROUP", "RATE")
	contains(t, r.good("top", "--json"), `"rates"`, `"bytes_down"`, `"flows"`, `"groups"`)
	// A terminal that can do nothing gets the same.
	term := atTerminal(t, 80, 24, []string{"TERM=dumb"}, "top", "--admin", r.admin)
	term.see("LISTENER")
	term.end()
	if code, _, stderr := run(t, "top", "--admin", "unix:///nowhere/at/all.sock"); code != exitFailed {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// On a terminal a drain that is waited for has one line, which changes.
func TestDrainAtTerminal(t *testing.T) {
	d := newDaemon()
	d.looked = func(d *daemon) {
		m := &d.groups[0].Members[0]
		m.Flows = max(0, m.Flows-1)
	}
	r := newRig(t, d)
	term := atTerminal(t, 80, 24, nil, "drain", "web/tcp://10.0.0.1:80", "--wait", "--admin", r.admin)
	term.see("3 of 3 flows left")
	term.see("1 of 3 flows left")
	term.end()
	term.see("drained, weight 10, 0 flows")
}
