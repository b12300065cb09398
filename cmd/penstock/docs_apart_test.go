package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A page is what a test has to know of one beyond its text: as little as possible.
type page struct {
	needs string // programs without which the page is not run
	first string // what the page assumes: commands that are run before it
	lines []special
}

// A special line of a page is not run as it stands, or answers what the page does not show. The last one that matches counts.
type special struct {
	line  string // how it begins
	why   string // it is not run, for this reason
	block bool   // and neither are the lines after it in its block

	needs string   // programs without which it is not run
	first string   // commands that are run before
	as    string   // what is run in its place
	until string   // it stays in the foreground until the next such line: the page goes on, in another terminal, when this succeeds
	code  string   // the exit code, a pattern of a shell's case; empty: 0
	says  []string // what it answers
}

// prologue is what a shell with a person in front of it has, and a script has not: it ends at a command that fails, and says
// which one that was; and a command that stays in the foreground has a process group, to which Ctrl-C goes.
const prologue = `
trap 'code=$?; echo "exit code $code of: $BASH_COMMAND" >&2; exit $code' ERR # which does not hold for jobs in the background
foreground=
ctrl_c() {
	[ -n "$foreground" ] || return 0
	kill -INT -- -$foreground
	wait $foreground || true
	foreground=
}
mkdir -p /tmp/page && cd /tmp/page
`

// A plan is what becomes of the commands of a page.
type plan struct {
	script  string   // runs them
	answers []string // what the script must print, in this order
	skipped []typed  // they are not run
	unused  []string // special lines that the page does not have
	runs    bool     // there is something to run
}

// plan makes the plan of a page with these blocks.
func (page *page) plan(list []block) plan {
	p, used := plan{script: prologue + page.first + "\n"}, map[int]bool{}
	for _, block := range list {
		if name := block.file(); name != "" && block.isYAML() {
			p.script += fmt.Sprintf("cat >%s <<'END OF FILE'\n%s\nEND OF FILE\n", name, strings.Join(block.text, "\n"))
		}
		if !block.isShell() {
			continue
		}
		p.script += fmt.Sprintf("echo '--- %s:%d'\n", block.page, block.line)
		rest := false // of the block is not run
		for _, c := range block.commands() {
			var how special
			for i, candidate := range page.lines {
				if strings.HasPrefix(c.command, candidate.line) {
					how, used[i] = candidate, true
				}
			}
			if rest || how.why != "" || !installed(how.needs) {
				rest = rest || how.block
				p.skipped = append(p.skipped, c)
				continue
			}
			p.script += how.commands(c.command)
			p.answers = append(append(p.answers, c.answer...), how.says...)
			p.runs = true
		}
	}
	for i, line := range page.lines {
		if !used[i] {
			p.unused = append(p.unused, line.line)
		}
	}
	p.script += "ctrl_c\n"
	return p
}

// installed reports whether the programs are.
func installed(tools string) bool {
	for tool := range strings.FieldsSeq(tools) {
		if _, err := exec.LookPath(tool); err != nil {
			return false
		}
	}
	return true
}

// commands returns what is run for a line.
func (s *special) commands(line string) string {
	if s.as != "" {
		line = s.as
	}
	switch {
	case s.until != "":
		line = fmt.Sprintf("ctrl_c; set -m\n{\n%s\n} & foreground=$!; set +m\nuntil %s 2>/dev/null; do kill -0 $foreground; sleep 0.05; done", line, s.until)
	case s.code != "":
		line = fmt.Sprintf("{\n%s\n} && code=0 || code=$?\ncase $code in %s) ;; *) (exit $code) ;; esac", line, s.code)
	}
	if s.first != "" {
		line = s.first + "\n" + line
	}
	return line + "\n"
}

// apart is a machine of its own for a script, as far as namespaces can be one: it has only the loopback device, what is written to
// the folders that documents use is gone with it, and so is every process. Below /mnt are these folders as they were, and the
// repository.
const apart = `set -e
ip link set lo up
mount -t tmpfs tmpfs /mnt
mkdir /mnt/bin && mount --bind "$1" /mnt/bin
mkdir /mnt/repository && mount --rbind ../.. /mnt/repository
for dir in /etc /var/lib /var/log /run /tmp; do
	mkdir -p /mnt$dir && mount --rbind $dir /mnt$dir && mount -t tmpfs tmpfs $dir
done
cp -r /mnt/etc/. /etc 2>/dev/null || true   # not what this user may not read
for name in /mnt/var/lib/*; do ln -s $name /var/lib; done
chmod 1777 /tmp
export PATH=/mnt/bin:$PATH TMPDIR=/tmp
exec bash /mnt/bin/script
`

// patienceWithPage bounds how long a page may take, on however busy a machine.
const patienceWithPage = 3 * time.Minute

// runApart runs a script apart, with the daemon under test as penstock, and returns what it printed.
func runApart(t *testing.T, script string) (string, error) {
	t.Helper()
	flags := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		t.Skip("the documents' commands are root's: they add users, and write below /etc and /run")
	}
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { // for the user of a sandbox
		t.Fatal(err)
	}
	if out, err := exec.Command("unshare", append(flags, "sh", "-c", strings.ReplaceAll(apart, "exec bash", ": "), "sh", dir)...).CombinedOutput(); err != nil {
		t.Skipf("this user may not make the namespaces that it needs: %v: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Link(binary, filepath.Join(dir, "penstock")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patienceWithPage)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", append(flags, "sh", "-c", apart, "sh", dir)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "LC_ALL=C.UTF-8")
	cmd.WaitDelay = patience
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(out), err
}
