//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A server has the configuration.
type server interface {
	// source returns the URL that a daemon's -c has.
	source() string
	publish(text string) error
	start() error // again, after kill, at the same address with the same data
	kill()
	pid() int
	port() string
	// requests returns how many requests were handled so far; 0: the server does not count them.
	requests() (float64, error)
	close()
}

func newServer(kind, dir string) (server, error) {
	p := process{args: []string{kind}}
	switch kind {
	case "etcd":
		p.args = append(p.args, "-data", filepath.Join(dir, "etcd"))
		s := &etcdServer{process: p}
		return s, s.start()
	case "ads":
		s := &adsServer{process: p, file: filepath.Join(dir, "resources.json")}
		s.args = append(s.args, "-resources", s.file)
		if err := s.publish("{}"); err != nil {
			return nil, err
		}
		return s, s.start()
	}
	return nil, fmt.Errorf("unknown server %q; allowed: etcd, ads", kind)
}

// process is a process of program fleetservers (module fleettest).
type process struct {
	args  []string
	url   string
	cmd   *exec.Cmd
	stdin io.Closer // the server ends with it
}

func (p *process) start() error {
	path, err := exec.Command("go", "tool", "-n", "fleetservers").Output()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return fmt.Errorf("build fleetservers: %w\n%s", err, e.Stderr)
	} else if err != nil {
		return err
	}
	args := p.args
	if p.url != "" {
		args = append(slices.Clone(args), "-listen", p.url)
	}
	cmd := exec.Command(strings.TrimSpace(string(path)), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.stdin = cmd, stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 || words[0] != "ready" {
		p.kill()
		return fmt.Errorf("%s is not ready: %q, %v\n%s", p.args[0], line, err, stderr.Bytes())
	}
	p.url = words[1]
	return nil
}

func (p *process) kill() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.cmd = nil
	}
}

func (p *process) close()   { p.kill() }
func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) host() string {
	_, host, _ := strings.Cut(p.url, "://")
	return host
}

func (p *process) port() string {
	u, err := url.Parse(p.url)
	if err != nil {
		return ""
	}
	return u.Port()
}

// etcdServer is a real etcd.
type etcdServer struct {
	process
	operator *fleet.Operator
}

const fleetKey = "/penstock/scale"

func (s *etcdServer) source() string { return "etcd://" + s.host() + fleetKey }

func (s *etcdServer) publish(text string) (err error) {
	if s.operator == nil {
		registry, key, err := spec.ParseRemote(s.source())
		if err != nil {
			return err
		}
		if s.operator, err = fleet.Open(registry, key, "scale"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	state, err := s.operator.State(ctx)
	if err != nil {
		return err
	}
	_, err = s.operator.Publish(ctx, state, fleet.Draft{Text: text, Message: "scale"}, "publish")
	return err
}

var metricsClient = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// requests returns the sum of grpc_server_started_total: what came by its gateway counts, too.
func (s *etcdServer) requests() (sum float64, err error) {
	res, err := metricsClient.Get(s.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if line := in.Text(); strings.HasPrefix(line, "grpc_server_started_total{") {
			var v float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, nil
}

func (s *etcdServer) close() {
	if s.operator != nil {
		s.operator.Close()
	}
	s.kill()
}

// adsServer is a control plane of go-control-plane, which follows a file.
type adsServer struct {
	process
	file string
}

const resourceName = "scale"

func (s *adsServer) source() string { return "xds://" + s.host() + "/" + resourceName }

func (s *adsServer) publish(text string) error {
	type object = map[string]any
	b, err := json.Marshal(object{"resources": []object{{"@type": "type.googleapis.com/penstock.v1.Configuration", "name": resourceName, "text": text}}})
	if err != nil {
		return err
	}
	next := s.file + ".next"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.file)
}

func (s *adsServer) requests() (float64, error) { return 0, nil }
