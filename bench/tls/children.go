//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
)

// sinkArgs is what the child at the far end is told.
type sinkArgs struct {
	Spec             load.TLSSpec
	Certificate, Key string // "": plain TCP
}

// generateArgs is what the child at the near end is told.
type generateArgs struct {
	Spec   load.TLSSpec
	Config struct {
		Addr         string
		Relay, Sink  int
		CPUs         string
		Warm, Window time.Duration
	}
}

// sink prints its address and serves.
func sink(text string) error {
	var a sinkArgs
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	s, err := load.NewTLSSink(a.Spec, a.Certificate, a.Key)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr)
	return s.Serve()
}

// generate runs the load and prints its result as JSON.
func generate(text string) error {
	var a generateArgs
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	c := a.Config
	r, err := load.RunTLS(a.Spec, load.Config{Addr: c.Addr, Relay: c.Relay, Sink: c.Sink, CPUs: c.CPUs, Warm: c.Warm, Window: c.Window})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// startSink runs the sink as a child and returns its address.
func (b *bench) startSink(a sinkArgs) (addr string, pid int, stop func(), err error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", 0, nil, err
	}
	cmd := exec.Command(b.self, "sink", string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, fmt.Errorf("start the sink: %w", err)
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", 0, nil, fmt.Errorf("the sink did not start: %w", err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid, stop, nil
}

// runGenerator runs the generator as a child and returns its result.
func (b *bench) runGenerator(a generateArgs) (r load.TLSResult, err error) {
	text, err := json.Marshal(a)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.warm+b.window+2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, b.self, "generate", string(text))
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("generator: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}
