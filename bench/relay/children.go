//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
)

// sink is the child at the far end: it prints its address and serves.
func sink(args []string) error {
	fs := flag.NewFlagSet("sink", flag.ExitOnError)
	text := fs.String("load", "", "the load")
	verify := fs.Bool("verify", false, "read and check every byte")
	host := fs.String("host", "127.0.0.1", "the address at which it listens")
	fs.Parse(args)
	spec, err := load.Parse(*text)
	if err != nil {
		return err
	}
	s, err := load.NewSink(spec, *host, *verify)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr)
	return s.Serve()
}

// generate is the child at the near end: it runs the load and prints its Result as JSON.
func generate(args []string) error {
	fs := flag.NewFlagSet("generate", flag.ExitOnError)
	text := fs.String("load", "", "the load")
	var cfg load.Config
	fs.IntVar(&cfg.Relay, "relay", 0, "the relay's first process")
	fs.IntVar(&cfg.Sink, "sink", 0, "the sink's process")
	fs.StringVar(&cfg.CPUs, "cpus", "", "the CPUs that all are bound to; empty: all")
	fs.StringVar(&cfg.Addr, "addr", "", "the relay's listener")
	fs.DurationVar(&cfg.Warm, "warm", 0, "load before the window")
	fs.DurationVar(&cfg.Window, "window", 0, "length of the measurement")
	fs.BoolVar(&cfg.Verify, "verify", false, "check every byte instead of measuring")
	admin := fs.String("admin", "", "the admin socket of a relay with a keeper")
	fs.Parse(args)
	if *admin != "" {
		cfg.Settled = func() (int64, error) { return peer.Settled(*admin) }
	}
	spec, err := load.Parse(*text)
	if err != nil {
		return err
	}
	r, err := load.Run(spec, cfg)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// startSink runs the sink as a child and returns its address at host.
func (b *bench) startSink(l namedLoad, host string, verify bool) (addr string, pid int, stop func(), err error) {
	cmd := exec.Command(b.self, "sink", "-load", l.text, "-host", host, "-verify="+strconv.FormatBool(verify))
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
func (b *bench) runGenerator(l namedLoad, addr string, admin string, relay, sink int, verify bool) (load.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.warm+b.window+90*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, b.self, "generate", "-load", l.text, "-addr", addr, "-admin", admin, "-relay", strconv.Itoa(relay), "-sink", strconv.Itoa(sink), "-cpus", b.place.cpus,
		"-warm", b.warm.String(), "-window", b.window.String(), "-verify="+strconv.FormatBool(verify))
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return load.Result{}, fmt.Errorf("generator: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	var r load.Result
	err := json.Unmarshal(out.Bytes(), &r)
	return r, err
}

// goCopy runs the relay that is part of this program; its arguments are threads, listener and
// upstream.
func goCopy(args []string) error {
	threads, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	return peer.GoCopy(threads, args[1], args[2])
}
