//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/penstock/penstock/bench/internal/child"
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
func (w *testbed) push(p push) (leave func() error, err error) {
	cmd, err := child.Command("push", p)
	if err != nil {
		return nil, err
	}
	c, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	w.service.helper.Store(int64(c.PID))
	line, err := c.Line()
	var said pushed
	if err == nil {
		err = json.Unmarshal([]byte(line), &said)
	}
	if err != nil {
		return nil, fmt.Errorf("clients that push: %w", err)
	}
	w.note("of a crowd, connected", said.Connected)
	if said.Failed > 0 {
		w.note("of a crowd, not connected", said.Failed)
	}
	return func() error {
		line, err := c.End()
		if err == nil {
			err = json.Unmarshal([]byte(line), &said)
		}
		w.service.helper.Store(0)
		w.note("of a crowd, MB taken", said.MB)
		return err
	}, nil
}

// pushAll is the child. It ends when its standard input does.
func pushAll(p *push) error {
	w := &testbed{notes: make(map[string]float64)}
	var taken atomic.Int64
	join(w, p.Clients, streamPort, "", pusher(p.Want, p.Most, &taken))
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(pushed{Connected: w.noted("of a crowd, connected"), Failed: w.noted("of a crowd, not connected")}); err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	return out.Encode(pushed{MB: float64(taken.Load() / 1e6)})
}
