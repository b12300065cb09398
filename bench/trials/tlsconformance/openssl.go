//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/trial"
)

// An sclient is openssl s_client, which runs.
type sclient struct {
	t    *target
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan error

	mu  sync.Mutex
	out bytes.Buffer
}

func (c *sclient) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (c *sclient) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// dial starts s_client with the usual arguments, and further ones, which may override them.
func (t *target) dial(args ...string) (*sclient, error) {
	if err := needs("openssl"); err != nil {
		return nil, err
	}
	c := &sclient{t: t, done: make(chan error, 1)}
	usual := []string{"s_client", "-connect", t.addr, "-CAfile", t.authority.CA, "-verify_return_error"}
	if !strings.Contains(strings.Join(args, " "), "-servername") && !strings.Contains(strings.Join(args, " "), "-noservername") {
		usual = append(usual, "-servername", certs.Name, "-verify_hostname", certs.Name)
	}
	c.cmd = exec.Command("openssl", append(usual, args...)...)
	c.cmd.Stdout, c.cmd.Stderr = c, c
	c.cmd.WaitDelay = time.Second
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { c.done <- c.cmd.Wait() }()
	return c, nil
}

// errEnded is what waiting for a text returns when s_client ended before.
var errEnded = errors.New("s_client ended")

// until waits until s_client has printed a text.
func (c *sclient) until(text string) error { return c.times(text, 1) }

// times waits until it has printed a text n times.
func (c *sclient) times(text string, n int) error {
	for end := time.Now().Add(c.t.patience); strings.Count(c.text(), text) < n; time.Sleep(time.Millisecond) {
		select {
		case err := <-c.done:
			c.done <- err
			if strings.Count(c.text(), text) >= n {
				return nil
			}
			return fmt.Errorf("%w without printing %q: %v\n%s", errEnded, text, err, trial.Tail(c.text(), 12))
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("s_client did not print %q within %v\n%s", text, c.t.patience, trial.Tail(c.text(), 12))
		}
	}
	return nil
}

// say sends a line, and waits for its echo. A line of one letter would be a command.
func (c *sclient) say(line string) error {
	io.WriteString(c.in, line+"\n") // until returns how it ended
	return c.until(line)
}

// end ends s_client.
func (c *sclient) end() {
	io.WriteString(c.in, "Q\n")
	c.in.Close()
	select {
	case <-c.done:
	case <-time.After(c.t.patience):
		c.cmd.Process.Kill()
		<-c.done
	}
}

// echoes expects an echo, and that s_client prints a text.
func (t *target) echoes(want string, args ...string) error {
	_, err := t.talk(want, args...)
	return err
}

func (t *target) talk(want string, args ...string) (string, error) {
	c, err := t.dial(args...)
	if err != nil {
		return "", err
	}
	defer c.end()
	if err := c.say("a line that comes back"); err != nil {
		return c.text(), err
	}
	if want != "" {
		return c.text(), c.until(want)
	}
	return c.text(), nil
}

// refused expects that s_client ends without an echo.
func (t *target) refused(args ...string) error {
	c, err := t.dial(args...)
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.say("a line that must not come back"); err == nil {
		return fmt.Errorf("the line came back\n%s", trial.Tail(c.text(), 20))
	} else if !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func serverNames(t *target) error {
	for _, c := range []struct {
		args []string
		name string
	}{
		{[]string{"-servername", other, "-verify_hostname", other}, other},
		{[]string{"-servername", certs.Name, "-verify_hostname", certs.Name}, certs.Name},
		{[]string{"-servername", "nobody.example", "-verify_hostname", certs.Name}, certs.Name},
		{[]string{"-noservername", "-verify_hostname", certs.Name}, certs.Name},
	} {
		if err := t.echoes("Verified peername: "+c.name, c.args...); err != nil {
			return fmt.Errorf("%v: %w", c.args, err)
		}
	}
	return nil
}

// file returns a path of a file for a case.
func (t *target) file(name string) string { return filepath.Join(t.dir, name) }

func (t *target) resumes(version string) error {
	ticket := t.file("ticket-" + version)
	defer os.Remove(ticket)
	if err := t.echoes("", "-"+version, "-sess_out", ticket); err != nil {
		return err
	}
	return t.echoes("\nReused, ", "-"+version, "-sess_in", ticket)
}

func (t *target) fragments(version string) error {
	c, err := t.dial("-"+version, "-max_send_frag", "512", "-split_send_frag", "512", "-quiet")
	if err != nil {
		return err
	}
	defer func() {
		c.cmd.Process.Kill() // quiet, it knows no commands
		c.end()
	}()
	var sent strings.Builder
	for i := range 1 << 14 {
		fmt.Fprintf(&sent, "%063d\n", i)
	}
	if _, err := io.WriteString(c.in, sent.String()); err != nil {
		return err
	}
	if err := c.until(fmt.Sprintf("%063d\n", 1<<14-1)); err != nil {
		return err
	}
	if !strings.HasSuffix(c.text(), sent.String()) {
		return errors.New("other bytes came back than were sent")
	}
	return nil
}

func renegotiate(t *target) error {
	c, err := t.dial("-tls1_2")
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.say("before"); err != nil {
		return err
	}
	before := len(c.text())
	if _, err := io.WriteString(c.in, "R\n"); err != nil {
		return err
	}
	if err := c.until("RENEGOTIATING"); err != nil {
		return err
	}
	err = c.say("afterwards")
	after := c.text()[before:]
	if err == nil && !strings.Contains(after, "no renegotiation") {
		return fmt.Errorf("went on after it\n%s", after)
	}
	if err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func keyUpdate(t *target) error {
	c, err := t.dial("-tls1_3")
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.say("before"); err != nil {
		return err
	}
	for i, command := range []string{"k", "K", "K", "k"} { // K asks the server to do it, too
		if _, err := io.WriteString(c.in, command+"\n"); err != nil {
			return err
		}
		// What it reads together with a command is lost.
		if err := c.times("KEYUPDATE", i+1); err != nil {
			return err
		}
		if err := c.say(fmt.Sprintf("after update %d", i)); err != nil {
			return err
		}
	}
	return nil
}

func earlyData(t *target) error {
	ticket, early := t.file("ticket-early"), t.file("early")
	defer os.Remove(ticket)
	if err := os.WriteFile(early, []byte("early data\n"), 0o644); err != nil {
		return err
	}
	if err := t.echoes("", "-tls1_3", "-sess_out", ticket); err != nil {
		return err
	}
	text, err := t.talk("", "-tls1_3", "-sess_in", ticket, "-early_data", early)
	if err != nil {
		return err
	}
	if strings.Contains(text, "Early data was accepted") {
		return errors.New("it was accepted")
	}
	return nil
}

func (t *target) curl(version string) error {
	if err := needs("curl"); err != nil {
		return err
	}
	out, err := t.run(t.patience, "curl", "-sS", "--cacert", t.authority.CA, "--resolve", certs.Name+":"+t.port+":127.0.0.1",
		"--tlsv"+version, "--tls-max", version, "--http1.1", "--write-out", " %{http_code} %{ssl_verify_result}", "https://"+certs.Name+":"+t.port+"/")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if out != "answered 200 0" {
		return fmt.Errorf("got %q", out)
	}
	return nil
}
