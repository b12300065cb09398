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

// testCase is one thing that is done, and what must be seen then.
type testCase struct {
	name, what string
	run        func(*guest) (seen string, err error)
}

// cases are in the order in which they run.
var cases = []testCase{
	{"deb-install", "`apt install ./penstock_" + older + "_amd64.deb`", (*guest).installDeb},
	{"deb-broken", "`systemctl start penstock` with a configuration that is wrong", (*guest).startBroken},
	{"deb-start", "`systemctl start penstock`, with listeners at ports 443 (TCP) and 53 (UDP)", (*guest).start},
	{"deb-reload", "`systemctl reload penstock` with one more listener, then `penstock reload` with an error in the file", (*guest).reload},
	{"deb-kill-worker", "`kill -9` of the worker", (*guest).killWorker},
	{"deb-hang-worker", "the worker hangs (`kill -STOP`)", (*guest).hangWorker},
	{"deb-memory", "`MemoryMax=64M`, and another process of the unit takes it all", (*guest).memory},
	{"deb-logrotate", "`logrotate --force`", (*guest).logrotate},
	{"deb-upgrade", "`apt install ./penstock_" + newer + "_amd64.deb`", (*guest).upgradeDeb},
	{"deb-no-upgrade", "`PENSTOCK_UPGRADE=no apt install ./penstock_" + older + "_amd64.deb`, then `penstock upgrade`", (*guest).downgradeDeb},
	{"deb-kill-keeper", "`kill -9` of the keeper, the unit's main process", (*guest).killKeeper},
	{"deb-hang-keeper", "the keeper hangs (`kill -STOP`), `WatchdogSec=30`", (*guest).hangKeeper},
	{"deb-restart", "`systemctl restart penstock`, `drain: 3s`", (*guest).restart},
	{"deb-stop", "`systemctl stop penstock` while clients talk", (*guest).stop},
	{"deb-stop-soon", "`systemctl stop penstock` while it starts", (*guest).stopSoon},
	{"deb-alone", "without a keeper: the package is upgraded, then `kill -9` of the daemon", (*guest).alone},
	{"deb-remove", "`apt remove penstock` while clients talk, then `apt purge penstock`", (*guest).removeDeb},
	{"rpm-install", "`rpm -i penstock-" + older + "-1.x86_64.rpm`, then `systemctl start penstock`", (*guest).installRPM},
	{"rpm-upgrade", "`rpm -U penstock-" + newer + "-1.x86_64.rpm`", (*guest).upgradeRPM},
	{"rpm-remove", "`rpm -e penstock` while clients talk", (*guest).removeRPM},
	{"container-run", "`podman run --read-only` by a user who is not root", (*guest).runContainer},
	{"container-kill-worker", "`kill -9` of the worker", (*guest).containerKillWorker},
	{"container-memory", "`--memory 64m`, and another process of the container takes it all", (*guest).containerMemory},
	{"container-upgrade", "`podman cp` of the next version, and `penstock upgrade --binary`", (*guest).containerUpgrade},
	{"container-health", "`--health-cmd '[\"/usr/bin/penstock\", \"status\"]'`", (*guest).containerHealth},
	{"container-kill", "`kill -9` of the keeper, the container's first process, with `--restart on-failure`", (*guest).containerKill},
	{"container-stop", "`podman stop -t 60` while clients talk, `drain: 3s`", (*guest).containerStop},
}

func debOf(version string) string { return filepath.Join(shared, "penstock_"+version+"_amd64.deb") }

func rpmOf(version string) string {
	return filepath.Join(shared, "penstock-"+version+"-1.x86_64.rpm")
}

func (g *guest) installDeb() (string, error) {
	if err := g.runAll("apt-get install -y "+debOf(older), "dpkg -V penstock"); err != nil {
		return "", err
	}
	return g.notStarted()
}

// notStarted is what installing a package must not do.
func (g *guest) notStarted() (string, error) {
	enabled, _ := g.run("systemctl", "is-enabled", "penstock")
	active, _ := g.run("systemctl", "is-active", "penstock")
	if enabled != "disabled" || active != "inactive" {
		return "", fmt.Errorf("%s, %s", enabled, active)
	}
	return "installed, " + enabled + " and " + active, nil
}

func (g *guest) startBroken() (string, error) {
	if err := g.configure("listener: {}"); err != nil {
		return "", err
	}
	_, err := g.run("systemctl", "start", "penstock")
	if err == nil {
		return "", fmt.Errorf("it starts")
	}
	log, err := g.run("journalctl", "-u", "penstock", "-o", "cat", "--no-pager")
	if err != nil || !strings.Contains(log, configuration+":6:1: ") {
		return "", fmt.Errorf("the journal does not say where: %v: %s", err, log)
	}
	if g.unit("NRestarts") != "0" {
		if err := wait("no more starts", func() bool { return g.unit("ActiveState") == "failed" }); err != nil {
			return "", err
		}
	}
	seen := fmt.Sprintf("it fails, and the journal names file, line and column; systemd tries again %s times", g.unit("NRestarts"))
	return seen, g.runAll("systemctl stop penstock", "systemctl reset-failed penstock")
}

func (g *guest) start() (string, error) {
	if err := g.configure("keeper: {}"); err != nil {
		return "", err
	}
	if err := g.runAll("systemctl start penstock"); err != nil {
		return "", err
	}
	if status := g.unit("StatusText"); status != "serving" {
		return "", fmt.Errorf("status %q", status)
	}
	keeper := g.keeper()
	worker, err := g.worker()
	if err != nil {
		return "", err
	}
	uid, err := strconv.Atoi(g.unit("UID"))
	if err != nil || uid < 61184 || uid > 65519 { // systemd.exec(5), DynamicUser=
		return "", fmt.Errorf("user %d: %v", uid, err)
	}
	ids := fmt.Sprintf("%d %[1]d %[1]d %[1]d", uid)
	for _, pid := range []int{keeper, worker} {
		want := map[string]string{"Uid": ids, "NoNewPrivs": "1", "Seccomp": "2", "CapBnd": "0000000000000400"}
		for name, value := range want {
			if got := statusField(pid, name); got != value {
				return "", fmt.Errorf("%s of process %d is %q", name, pid, got)
			}
		}
	}
	if err := g.newFlows(); err != nil {
		return "", err
	}
	return fmt.Sprintf("active, \"serving\", as a dynamic user (%d) with no capability but NET_BIND_SERVICE; %v", uid, g.flows.look()), nil
}

func (g *guest) reload() (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	if err := g.configure("  one-more: {listen: \"tcp://127.0.0.1:444\", to: \"echo:\"}", "keeper: {}"); err != nil {
		return "", err
	}
	if err := g.runAll("systemctl reload penstock"); err != nil {
		return "", err
	}
	if err := wait("the new listener", func() bool {
		text, err := g.run("penstock", "status")
		return err == nil && strings.Contains(text, "one-more")
	}); err != nil {
		return "", err
	}
	if err := g.configure("keeper: {}", "listener: {}"); err != nil {
		return "", err
	}
	text, err := g.run("penstock", "reload")
	if code(err) != 1 || !strings.Contains(text, configuration+":7:1: ") {
		return "", fmt.Errorf("a reload with an error: %v: %s", err, text)
	}
	if err := g.configure("keeper: {}"); err != nil {
		return "", err
	}
	if err := g.runAll("penstock reload"); err != nil {
		return "", err
	}
	return g.flows.goOn()
}

// replaced does something to the worker, and waits for the next one. The keeper stays.
func (g *guest) replaced(do func(worker int) error) (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	keeper := g.keeper()
	worker, err := g.worker()
	if err != nil {
		return "", err
	}
	if err := do(worker); err != nil {
		return "", err
	}
	if _, err := g.worker(worker); err != nil {
		return "", err
	}
	seen, err := g.flows.goOn()
	if err != nil {
		return "", err
	}
	if g.keeper() != keeper || g.unit("NRestarts") != "0" || g.unit("ActiveState") != "active" {
		return "", fmt.Errorf("the keeper is %d and was %d; %s restarts, %s", g.keeper(), keeper, g.unit("NRestarts"), g.unit("ActiveState"))
	}
	return seen + "; systemd has restarted nothing", nil
}

func (g *guest) killWorker() (string, error) {
	return g.replaced(func(worker int) error { return syscall.Kill(worker, syscall.SIGKILL) })
}

func (g *guest) hangWorker() (string, error) {
	return g.replaced(func(worker int) error { return syscall.Kill(worker, syscall.SIGSTOP) })
}

func (g *guest) memory() (string, error) {
	if err := g.runAll("systemctl set-property --runtime penstock MemoryMax=64M"); err != nil {
		return "", err
	}
	seen, err := g.replaced(func(worker int) error { return g.outOfMemory("/sys/fs/cgroup"+g.unit("ControlGroup"), worker) })
	if err != nil {
		return "", err
	}
	log, err := g.run("journalctl", "-u", "penstock", "-o", "cat", "--no-pager")
	if err != nil || !strings.Contains(log, "signal 9 (the kernel's OOM killer)") {
		return "", fmt.Errorf("the journal does not name the OOM killer: %v", err)
	}
	return "the kernel kills the worker, and the journal says so; " + seen, g.runAll("systemctl revert penstock")
}

func (g *guest) logrotate() (string, error) {
	if err := g.configure("keeper: {}", "access-log: {to: /var/log/penstock/access.log}"); err != nil {
		return "", err
	}
	if err := g.runAll("penstock reload"); err != nil {
		return "", err
	}
	written := func(name string) error {
		return wait(name, func() bool {
			text, err := os.ReadFile("/var/log/penstock/" + name)
			return err == nil && strings.HasSuffix(string(text), "}\n")
		})
	}
	g.noFlows() // records are written at the end
	if err := written("access.log"); err != nil {
		return "", err
	}
	if err := g.runAll("logrotate --force /etc/logrotate.d/penstock"); err != nil {
		return "", err
	}
	if err := g.newFlows(); err != nil {
		return "", err
	}
	g.noFlows()
	for _, name := range []string{"access.log.1", "access.log"} {
		if err := written(name); err != nil {
			return "", err
		}
	}
	return "the next records are in the next file", nil
}

func (g *guest) upgradeDeb() (string, error) {
	return g.upgraded(newer, "penstock.service runs this version; its flows continue.", nil, "apt-get", "install", "-y", debOf(newer))
}

func (g *guest) downgradeDeb() (string, error) {
	if _, err := g.upgraded(newer, "penstock.service still runs the previous version. To change to this one: penstock upgrade", []string{"PENSTOCK_UPGRADE=no"},
		"apt-get", "install", "-y", "--allow-downgrades", debOf(older)); err != nil {
		return "", err
	}
	return g.upgraded(older, "upgraded to v"+older, nil, "penstock", "upgrade")
}

// upgraded runs what says what it has done with the service, and looks for the version that runs then, and at the flows.
func (g *guest) upgraded(version, says string, env []string, argv ...string) (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	text, err := g.runWith(env, argv...)
	if err != nil || !strings.Contains(text, says) {
		return "", fmt.Errorf("%v: it says %q", err, text)
	}
	status, err := g.run("penstock", "status")
	if err != nil || !strings.Contains(status, "v"+version+", ready") {
		return "", fmt.Errorf("%v: %s", err, status)
	}
	seen, err := g.flows.goOn()
	return "v" + version + " runs; " + seen, err
}

// again does something after which systemd starts the unit again by itself.
func (g *guest) again(do func(keeper int) error) (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	keeper, begin := g.keeper(), time.Now()
	if err := do(keeper); err != nil {
		return "", err
	}
	if err := wait("another start", func() bool {
		pid := g.keeper()
		return pid != 0 && pid != keeper && g.unit("ActiveState") == "active"
	}); err != nil {
		return "", err
	}
	took := time.Since(begin).Round(time.Second)
	seen, err := g.flows.haveEnded()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("systemd has started it again after %v; %s", took, seen), g.newFlows()
}

func (g *guest) killKeeper() (string, error) {
	return g.again(func(keeper int) error { return syscall.Kill(keeper, syscall.SIGKILL) })
}

func (g *guest) hangKeeper() (string, error) {
	return g.again(func(keeper int) error { return syscall.Kill(keeper, syscall.SIGSTOP) })
}

func (g *guest) restart() (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	begin := time.Now()
	if err := g.runAll("systemctl restart penstock"); err != nil {
		return "", err
	}
	took := time.Since(begin).Round(time.Second)
	seen, err := g.flows.haveEnded()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("done after %v; %s", took, seen), g.newFlows()
}

func (g *guest) stop() (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	seen, err := g.stopped()
	g.noFlows()
	return seen, err
}

// stopped stops the service.
func (g *guest) stopped() (string, error) {
	begin := time.Now()
	if err := g.runAll("systemctl stop penstock"); err != nil {
		return "", err
	}
	took := time.Since(begin).Round(time.Second)
	result, status := g.unit("Result"), g.unit("ExecMainStatus")
	if result != "success" || g.unit("ActiveState") != "inactive" {
		return "", fmt.Errorf("%s, exit status %s, %s", result, status, g.unit("ActiveState"))
	}
	return fmt.Sprintf("after %v, exit status %s, which is no failure of the unit", took, status), nil
}

func (g *guest) stopSoon() (string, error) {
	if err := g.runAll("systemctl start --no-block penstock"); err != nil {
		return "", err
	}
	if err := wait("the keeper", func() bool { return g.keeper() != 0 }); err != nil {
		return "", err
	}
	return g.stopped()
}

func (g *guest) alone() (string, error) {
	if err := g.configure(); err != nil {
		return "", err
	}
	if err := g.runAll("systemctl start penstock"); err != nil {
		return "", err
	}
	if _, err := g.upgraded(older, "systemctl restart penstock, which ends its flows", nil, "apt-get", "install", "-y", debOf(newer)); err != nil {
		return "", err
	}
	seen, err := g.killKeeper()
	return "the package says what to do, and all flows go on; killed: " + seen, err
}

func (g *guest) removeDeb() (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	if err := g.runAll("apt-get remove -y penstock"); err != nil {
		return "", err
	}
	g.noFlows()
	if g.unit("ActiveState") != "inactive" || !strings.Contains(g.configuration(), upstreamStream) {
		return "", fmt.Errorf("the service is %s, the configuration %q", g.unit("ActiveState"), g.configuration())
	}
	if err := g.runAll("apt-get purge -y penstock"); err != nil {
		return "", err
	}
	if left, err := g.left(); err != nil || left != "" {
		return "", fmt.Errorf("purged, it leaves %q, %v", left, err)
	}
	return "stopped, with its configuration kept; purged, nothing is left", nil
}

// left returns the files of the daemon's that are on the disk.
func (g *guest) left() (string, error) {
	return g.run("find", "/etc", "/usr", "/var", "/run", "-xdev", "-name", "*penstock*", "-not", "-path", "/var/lib/containers/*", "-not", "-path", "/usr/lib/modules/*")
}

func (g *guest) installRPM() (string, error) {
	if err := g.runAll("rpm -i --nodeps "+rpmOf(older), "rpm -V --nodeps penstock"); err != nil {
		return "", err
	}
	seen, err := g.notStarted()
	if err != nil {
		return "", err
	}
	if err := g.configure("keeper: {}"); err != nil {
		return "", err
	}
	if err := g.runAll("systemctl start penstock"); err != nil {
		return "", err
	}
	if err := g.newFlows(); err != nil {
		return "", err
	}
	return seen + "; then active, \"" + g.unit("StatusText") + "\"", nil
}

func (g *guest) upgradeRPM() (string, error) {
	seen, err := g.upgraded(newer, "penstock.service runs this version; its flows continue.", nil, "rpm", "-U", "--nodeps", rpmOf(newer))
	if err == nil && !strings.Contains(g.configuration(), upstreamStream) {
		err = fmt.Errorf("the configuration was replaced: %s", g.configuration())
	}
	return seen, err
}

func (g *guest) removeRPM() (string, error) {
	if err := g.newFlows(); err != nil {
		return "", err
	}
	if err := g.runAll("rpm -e penstock"); err != nil {
		return "", err
	}
	g.noFlows()
	if state := g.unit("ActiveState"); state != "inactive" {
		return "", fmt.Errorf("the service is %s", state)
	}
	left, err := g.left()
	if err != nil {
		return "", err
	}
	const kept = "/etc/penstock /etc/penstock/penstock.yaml.rpmsave /var/log/private/penstock /var/log/penstock /var/lib/private/penstock /var/lib/penstock"
	if strings.Join(strings.Fields(left), " ") != kept {
		return "", fmt.Errorf("it leaves %s", left)
	}
	return "stopped; what is left is the changed configuration, as penstock.yaml.rpmsave, the logs and the state", nil
}
