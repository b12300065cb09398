//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
)

// door is a listener of a daemon, and addresses that may go through it.
type door struct{ port string }

// newDoor starts a daemon with one listener, which has something more.
func (s *setup) newDoor(top, listener string) (d door, daemon *trial.Daemon, err error) {
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return d, nil, err
	}
	go func() {
		for {
			nc, err := origin.Accept()
			if err != nil {
				return
			}
			io.WriteString(nc, "hello")
			nc.Close()
		}
	}()
	if err := trial.Ports(&d.port); err != nil {
		return d, nil, err
	}
	daemon, err = s.daemon("%slisteners:\n  web: {listen: \"tcp://127.0.0.1:%s\", to: \"tcp://%s\"%s}\n", top, d.port, origin.Addr(), listener)
	return d, daemon, err
}

// open reports whether a client of an address is served.
func (d door) open(from string) bool {
	nc, err := dialFrom("tcp", from, d.port)
	if err != nil {
		return false
	}
	defer nc.Close()
	b, _ := io.ReadAll(nc)
	return string(b) == "hello"
}

// becomes waits until a client of an address is served or not, while another one is all the time, and returns how long that took.
func (d door) becomes(open bool, from string) (time.Duration, error) {
	start := time.Now()
	err := until(fmt.Sprintf("%s served: %v", from, open), nil, func() error {
		if !d.open("127.0.0.1") {
			return errors.New("somebody else is not served, either")
		}
		if d.open(from) != open {
			return errors.New("not yet")
		}
		return nil
	})
	return time.Since(start), err
}

// fail2ban lets it find addresses in a log. Its action is the one of docs/examples.
func fail2ban(s *setup) error {
	action, err := os.ReadFile("docs/examples/fail2ban-penstock.conf")
	if err != nil {
		return fmt.Errorf("begin in the folder of the repository: %w", err)
	}
	d, daemon, err := s.newDoor("", "")
	if err != nil {
		return err
	}
	log := filepath.Join(s.Dir, "app.log")
	for name, text := range map[string]string{
		"app.log":                "",
		"action.d/penstock.conf": string(action),
		"filter.d/app.conf":      "[Definition]\nfailregex = ^ failed login from <HOST>$\ndatepattern = ^%%Y-%%m-%%d %%H:%%M:%%S\n",
		"fail2ban.conf":          fmt.Sprintf("[Definition]\nloglevel = INFO\nlogtarget = STDOUT\nsyslogsocket = auto\nsocket = %[1]s/socket\npidfile = %[1]s/pid\ndbfile = None\n", s.Dir),
		"jail.conf": fmt.Sprintf("[app]\nenabled = true\nfilter = app\nlogpath = %s\nbackend = polling\nmaxretry = 2\nfindtime = 600\nbantime = 5\nusedns = no\naction = penstock[penstock=%s, admin=\"unix://%s\", name=app]\n",
			log, s.Penstock, daemon.Socket),
	} {
		if _, err := s.file(name, "%s", text); err != nil {
			return err
		}
	}
	server, err := s.begin("fail2ban", "fail2ban-server", "-c", s.Dir, "-f", "start")
	if err != nil {
		return err
	}
	if err := until("fail2ban", server, func() error { return exec.Command("fail2ban-client", "-c", s.Dir, "status", "app").Run() }); err != nil {
		return err
	}
	line := time.Now().Format(time.DateTime) + " failed login from 127.0.0.9\n"
	if _, err := s.file("app.log", "%s%s", line, line); err != nil {
		return err
	}
	banned, err := d.becomes(false, "127.0.0.9")
	if err != nil {
		return fmt.Errorf("%w: %s", err, server.Printed())
	}
	lifted, err := d.becomes(true, "127.0.0.9")
	if err != nil {
		return fmt.Errorf("%w: %s", err, server.Printed())
	}
	s.report("bantime=5s", banned, "banned-after-s", lifted, "lifted-after-s")
	return nil
}

// crowdsec lets a list follow decisions about an address and a range, which are added, deleted and expire.
func crowdsec(s *setup) error {
	var port string
	if err := trial.Ports(&port); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"simulation.yaml": "simulation: off\n",
		"hub/.index.json": "{}\n",
		"login.yaml":      "",
		"data/empty":      "",
		"profiles.yaml":   "name: default\nfilters: [\"Alert.Remediation == true\"]\ndecisions: [{type: ban, duration: 4h}]\non_success: break\n",
		"config.yaml": strings.NewReplacer("DIR", s.Dir, "PORT", port).Replace(`common: {daemonize: false, log_media: stdout, log_level: info, working_dir: .}
config_paths: {config_dir: DIR/, data_dir: DIR/data/, simulation_path: DIR/simulation.yaml, hub_dir: DIR/hub/, index_path: DIR/hub/.index.json}
db_config: {log_level: info, type: sqlite, db_path: DIR/data/crowdsec.db}
api:
  client: {credentials_path: DIR/login.yaml}
  server: {log_level: info, listen_uri: "127.0.0.1:PORT", profiles_path: DIR/profiles.yaml}
prometheus: {enabled: false}
`),
	} {
		if _, err := s.file(name, "%s", text); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(s.Dir, "patterns"), os.DirFS("/etc/crowdsec/patterns")); err != nil {
		return err
	}
	cscli := func(args ...string) (string, error) {
		out, err := exec.Command("cscli", append([]string{"-c", filepath.Join(s.Dir, "config.yaml")}, args...)...).Output()
		if err != nil {
			err = fmt.Errorf("cscli %q: %w", args, err)
		}
		return strings.TrimSpace(string(out)), err
	}
	if _, err := cscli("machines", "add", "trial", "--password", "trial", "-f", filepath.Join(s.Dir, "login.yaml")); err != nil {
		return err
	}
	token, err := cscli("bouncers", "add", "penstock", "-o", "raw")
	if err != nil {
		return err
	}
	file, err := s.file("token", "%s\n", token)
	if err != nil {
		return err
	}
	server, err := s.begin("crowdsec", "crowdsec", "-c", filepath.Join(s.Dir, "config.yaml"), "-no-cs")
	if err != nil {
		return err
	}
	d, _, err := s.newDoor(fmt.Sprintf("lists:\n  crowd: {crowdsec: \"http://127.0.0.1:%s\", token-file: %s, every: 1s}\n", port, file), ", deny: \"list:crowd\"")
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		args []string
		open bool
		from string
	}{
		{"address/added", []string{"decisions", "add", "--ip", "127.0.0.9", "--duration", "1h"}, false, "127.0.0.9"},
		{"address/deleted", []string{"decisions", "delete", "--ip", "127.0.0.9"}, true, "127.0.0.9"},
		{"range/added", []string{"decisions", "add", "--range", "127.1.0.0/16", "--duration", "10s"}, false, "127.1.2.3"},
		{"range/expired-10s", nil, true, "127.1.2.3"},
	} {
		if step.args != nil {
			if err := until("CrowdSec", server, func() error { _, err := cscli(step.args...); return err }); err != nil {
				return err
			}
		}
		took, err := d.becomes(step.open, step.from)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", step.what, err, server.Printed())
		}
		s.report(step.what, took, "followed-after-s")
	}
	return nil
}
