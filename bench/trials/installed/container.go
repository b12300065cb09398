//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// user runs the containers, with an ID of its own, with which its folder in /run is named.
const (
	user   = "relay"
	userID = "1000"
)

// podman runs podman as the user.
func (g *guest) podman(args ...string) (string, error) {
	folder := "XDG_RUNTIME_DIR=/run/user/" + userID
	return g.run(append([]string{"runuser", "-u", user, "--", "env", folder, "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/" + userID + "/bus", "podman"}, args...)...)
}

// inspect returns something that podman knows of the container.
func (g *guest) inspect(what string) string {
	text, _ := g.podman("inspect", "--format", "{{"+what+"}}", "relay")
	return text
}

// containerKeeper returns the first process of the container.
func (g *guest) containerKeeper() int {
	pid, _ := strconv.Atoi(g.inspect(".State.Pid"))
	return pid
}

// containerFlows is newFlows for the container.
func (g *guest) containerFlows() error {
	if g.flows != nil {
		if _, err := g.flows.goOn(); err == nil {
			return nil
		}
		g.noFlows()
	}
	f, err := begin("127.0.0.1:8443", "127.0.0.1:8053")
	if err != nil {
		return err
	}
	g.flows = f
	return wait("the keeper holds all flows", func() bool {
		text, err := g.podman("exec", "relay", "/usr/bin/penstock", "status")
		return err == nil && strings.Contains(text, fmt.Sprintf("holds %d flows", 2*perKind))
	})
}

func (g *guest) runContainer() (string, error) {
	if err := g.runAll("useradd --create-home --uid "+userID+" "+user, "loginctl enable-linger "+user); err != nil {
		return "", err
	}
	if err := wait("the user's systemd", func() bool {
		_, err := os.Stat("/run/user/" + userID + "/bus")
		return err == nil
	}); err != nil {
		return "", err
	}
	text := strings.NewReplacer(stream, "127.0.0.1:8443", datagram, "127.0.0.1:8053").Replace(configured) + "keeper: {}\n"
	file := filepath.Join("/home", user, "penstock.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", err
	}
	if _, err := g.podman("load", "-i", filepath.Join(shared, "penstock-"+older+"-linux-amd64.oci.tar")); err != nil {
		return "", err
	}
	if _, err := g.podman("run", "-d", "--name", "relay", "--network", "host", "--read-only", "--cap-drop", "all", "--memory", "64m", "--restart", "on-failure",
		"--health-cmd", `["/usr/bin/penstock", "status"]`, "--health-interval", "2s", "-v", "next:/next",
		"-v", file+":"+configuration+":ro", "penstock/penstock:"+older); err != nil {
		return "", err
	}
	if err := wait("the daemon in the container", func() bool {
		_, err := g.podman("exec", "relay", "/usr/bin/penstock", "status")
		return err == nil
	}); err != nil {
		return "", err
	}
	if err := g.containerFlows(); err != nil {
		log, _ := g.podman("logs", "relay")
		return "", fmt.Errorf("%w\n%s", err, log)
	}
	seen, err := g.flows.goOn()
	return "it serves, with its keeper; " + seen, err
}

// containerReplaced does something to the worker, and waits for the next one. The container stays.
func (g *guest) containerReplaced(do func(worker int) error) (string, error) {
	if err := g.containerFlows(); err != nil {
		return "", err
	}
	keeper := g.containerKeeper()
	worker, err := newWorker(keeper)
	if err != nil {
		return "", err
	}
	if err := do(worker); err != nil {
		return "", err
	}
	if _, err := newWorker(keeper, worker); err != nil {
		return "", err
	}
	seen, err := g.flows.goOn()
	if err == nil && g.containerKeeper() != keeper {
		err = fmt.Errorf("the container's first process is %d and was %d", g.containerKeeper(), keeper)
	}
	return seen + "; the container goes on", err
}

func (g *guest) containerKillWorker() (string, error) {
	return g.containerReplaced(func(worker int) error { return syscall.Kill(worker, syscall.SIGKILL) })
}

func (g *guest) containerMemory() (string, error) {
	seen, err := g.containerReplaced(func(worker int) error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", worker))
		if err != nil {
			return err
		}
		return g.outOfMemory("/sys/fs/cgroup"+strings.TrimSpace(strings.TrimPrefix(string(text), "0::")), worker)
	})
	return "the kernel kills the worker; " + seen, err
}

func (g *guest) containerUpgrade() (string, error) {
	if err := g.containerFlows(); err != nil {
		return "", err
	}
	if _, err := g.podman("cp", filepath.Join(shared, "penstock"), "relay:/next/penstock"); err != nil {
		return "", err
	}
	text, err := g.podman("exec", "relay", "/usr/bin/penstock", "upgrade", "--binary", "/next/penstock")
	if err != nil {
		return "", err
	}
	if !strings.Contains(text, "upgraded to v"+newer) {
		return "", fmt.Errorf("it says %s", text)
	}
	return g.flows.goOn()
}

func (g *guest) containerHealth() (string, error) {
	if err := wait("healthy", func() bool { return g.inspect(".State.Health.Status") == "healthy" }); err != nil {
		return "", fmt.Errorf("%w: %q", err, g.inspect(".State.Health.Status"))
	}
	return "healthy", nil
}

func (g *guest) containerKill() (string, error) {
	if err := g.containerFlows(); err != nil {
		return "", err
	}
	keeper := g.containerKeeper()
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		return "", err
	}
	if err := wait("another start", func() bool {
		pid := g.containerKeeper()
		return pid != 0 && pid != keeper
	}); err != nil {
		return "", err
	}
	seen, err := g.flows.haveEnded()
	if err != nil {
		return "", err
	}
	return "podman has started it again; " + seen, g.containerFlows()
}

func (g *guest) containerStop() (string, error) {
	if err := g.containerFlows(); err != nil {
		return "", err
	}
	begin := time.Now()
	if _, err := g.podman("stop", "-t", "60", "relay"); err != nil {
		return "", err
	}
	took := time.Since(begin).Round(time.Second)
	g.noFlows()
	status, exit := g.inspect(".State.Status"), g.inspect(".State.ExitCode")
	if status != "exited" || exit != "0" && exit != "3" {
		return "", fmt.Errorf("%s, exit status %s", status, exit)
	}
	return fmt.Sprintf("after %v, exit status %s", took, exit), nil
}
