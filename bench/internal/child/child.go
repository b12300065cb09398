//go:build linux

// Package child runs this program again, in processes of their own: parts of a measurement or of a trial, such as a sink, a
// generator or one round. A child is told by its two arguments what to do: a word, and JSON. It ends with the thread that has
// started it.
package child

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Parts are what a program can do as a child, by their words.
type Parts map[string]func(text string) error

// Play plays a part if the program was started as a child, and reports whether it was.
func (p Parts) Play(args []string) (is bool, err error) {
	if len(args) != 2 || p[args[0]] == nil {
		return false, nil
	}
	return true, p[args[0]](args[1])
}

// Does returns a part that is told what to do.
func Does[What any](act func(*What) error) func(text string) error {
	return func(text string) error {
		what := new(What)
		if err := json.Unmarshal([]byte(text), what); err != nil {
			return err
		}
		return act(what)
	}
}

// Answers returns a part that also has a result, which it prints: see Run.
func Answers[What, Result any](act func(*What) (Result, error)) func(text string) error {
	return Does(func(what *What) error {
		result, err := act(what)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	})
}

// Command returns the command that starts a child. Its errors are those of this program.
func Command(word string, what any) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, word, string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// Run runs a child to its end, and reads its result. It kills a child that takes longer than patience; 0: no limit.
func Run(cmd *exec.Cmd, patience time.Duration, result any) error {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	if patience > 0 {
		stop := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		defer stop.Stop()
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return json.Unmarshal(out.Bytes(), result)
}

// A Child is a process that prints lines. It is told to end by the end of its input.
type Child struct {
	PID int
	In  io.WriteCloser

	cmd *exec.Cmd
	out *bufio.Reader
}

// Start starts a command as a child.
func Start(cmd *exec.Cmd) (*Child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Child{PID: cmd.Process.Pid, In: in, cmd: cmd, out: bufio.NewReader(out)}, nil
}

// Begin starts this program as a child that says in a line that it has begun.
func Begin(word string, what any) (c *Child, line string, err error) {
	cmd, err := Command(word, what)
	if err != nil {
		return nil, "", err
	}
	if c, err = Start(cmd); err != nil {
		return nil, "", err
	}
	line, err = c.Line()
	return c, line, err
}

// Line returns the next line that the child prints. A child that prints none is killed.
func (c *Child) Line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.Kill()
		return "", fmt.Errorf("the child %s says nothing: %w", c.cmd.Args[1], err)
	}
	return strings.TrimSpace(line), nil
}

// End ends the child's input, and returns the line that it prints before it ends.
func (c *Child) End() (line string, err error) {
	c.In.Close()
	if line, err = c.Line(); err != nil {
		return "", err
	}
	return line, c.cmd.Wait()
}

// Wait ends the child's input, and returns how the child ends.
func (c *Child) Wait() error {
	c.In.Close()
	return c.cmd.Wait()
}

// Kill ends the child at once.
func (c *Child) Kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}
