//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// A push is clients that send as much as they can, in a process of their own: in the process that measures,
// hundreds of goroutines that can all write are in the way of those whose waits are measured.
type push struct {
	Clients int
	Want    [8]byte // of upstreams
	Most    int     // bytes of each
}

// pushed is what the process says when all have tried to connect, and when it ends.
type pushed struct {
	Connected, Failed float64
	MB                float64 // that were taken from the clients, in 10⁶ bytes
}

// push begins a push, and returns when all clients have tried to connect. They end with leave.
func (w *world) push(p push) (leave func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, _ := json.Marshal(p)
	cmd := exec.Command(self, "push", string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
	w.service.helper.Store(int64(cmd.Process.Pid))
	answers := json.NewDecoder(out)
	var said pushed
	if err := answers.Decode(&said); err != nil {
		cmd.Process.Kill()
		return nil, fmt.Errorf("clients that push: %w: %w", err, cmd.Wait())
	}
	w.note("of a crowd, connected", said.Connected)
	if said.Failed > 0 {
		w.note("of a crowd, not connected", said.Failed)
	}
	return func() error {
		in.Close()
		err := answers.Decode(&said)
		cmd.Process.Kill()
		cmd.Wait()
		w.service.helper.Store(0)
		w.note("of a crowd, MB taken", said.MB)
		return err
	}, nil
}

// pushMain is the process. It ends when its standard input does.
func pushMain(text string) error {
	var p push
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	w := &world{notes: make(map[string]float64)}
	var taken atomic.Int64
	join(w, p.Clients, streamPort, "", pusher(p.Want, p.Most, &taken))
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(pushed{Connected: w.noted("of a crowd, connected"), Failed: w.noted("of a crowd, not connected")}); err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	return out.Encode(pushed{MB: float64(taken.Load() / 1e6)})
}
