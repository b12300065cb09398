package kube

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

type daemon struct{ *program }

func startDaemon(t *testing.T, config string) *daemon {
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	replaceFile(t, path, config)
	return &daemon{run(t, filepath.Join(t.TempDir(), "log"), nil, *penstock, "run", "-c", path)}
}

// A flow is one through the daemon.
type flow struct {
	t      *testing.T
	member string
	conn   net.Conn
	r      *bufio.Reader
}

func dial(t *testing.T) (*flow, error) {
	c, err := net.DialTimeout("tcp", host+":80", 10*time.Second)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	f := &flow{t: t, conn: c, r: bufio.NewReader(c)}
	line, err := f.r.ReadString('\n')
	if err != nil {
		c.Close()
		return nil, err
	}
	f.member = strings.TrimSpace(line)
	return f, nil
}

// open opens a flow to a member.
func (d *daemon) open(member string) (f *flow) {
	d.t.Helper()
	eventually(d.t, "a flow to "+member, func() string {
		var err error
		if f, err = dial(d.t); err != nil {
			return err.Error()
		}
		if f.member != member {
			f.close()
			return "it went to " + f.member
		}
		return ""
	})
	return f
}

// echo checks that the flow goes on.
func (f *flow) echo() {
	f.t.Helper()
	f.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(f.conn, "still here\n"); err != nil {
		f.t.Fatal(err)
	}
	if line, err := f.r.ReadString('\n'); err != nil || line != "still here\n" {
		f.t.Fatalf("the flow to %s: %q, %v", f.member, line, err)
	}
}

func (f *flow) close() { f.conn.Close() }

// reaches waits until new flows reach these members and no others.
func (d *daemon) reaches(want ...string) {
	d.t.Helper()
	slices.Sort(want)
	eventually(d.t, "the members", func() string {
		var got []string
		for range 4 * len(want) {
			f, err := dial(d.t)
			if err != nil {
				return err.Error()
			}
			f.close()
			if !slices.Contains(got, f.member) {
				got = append(got, f.member)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("flows reach %q, want %q", got, want)
		}
		return ""
	})
}

func (d *daemon) pause()  { d.signal("STOP") }
func (d *daemon) resume() { d.signal("CONT") }

func (d *daemon) signal(name string) {
	d.t.Helper()
	if err := exec.Command("kill", "-"+name, strconv.Itoa(d.cmd.Process.Pid)).Run(); err != nil {
		d.t.Fatal(err)
	}
}
