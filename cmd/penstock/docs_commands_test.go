package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// specialPages are those whose commands cannot all be run as they stand.
var specialPages = map[string]*page{
	"README.md": {
		first: "ip addr add 10.0.0.1/32 dev lo",
		lines: []special{
			{line: "go run ./cmd/penstock relay", as: "penstock relay tcp://127.0.0.1:7000 echo:", until: "(: </dev/tcp/127.0.0.1/7000)"},
			{line: "make check", why: "this is part of it"},
			{line: "nc 127.0.0.1 7000", needs: "nc", as: "(echo hello; echo hello) | nc -N 127.0.0.1 7000"},
			{line: "CGO_ENABLED=0 go build", as: "ctrl_c; ln -s $(type -p penstock)"},
			{line: "./penstock relay tcp:", until: "(: </dev/tcp/127.0.0.1/5432)"},
			{line: "./penstock relay unix:", until: "[ -S /run/app.sock ]"},
			{line: "./penstock relay --replies", until: "grep -q ':0035 ' /proc/net/udp6"},
			{line: "./penstock check", says: []string{"good: 1 listener, 2 groups"}},
			{line: "./penstock explain", says: []string{"group     api, p2c"}},
			{line: "./penstock run", until: "penstock status --admin unix:///tmp/penstock.sock >/dev/null"},
			{line: "nc 127.0.0.1 7000  ", why: "stays in the other terminal; the flow of docs/upgrades.md is the shell's own"},
			{line: "pkill -KILL", first: "until (: </dev/tcp/127.0.0.1/7000) 2>/dev/null; do sleep 0.05; done"},
			{line: "penstock publish", needs: "etcd etcdctl", first: etcdAt("10.0.0.1"), says: []string{"published version 1"}},
			{line: "penstock run -c etcd:", needs: "etcd etcdctl", until: "penstock fleet status --fleet etcd://10.0.0.1:2379/penstock/edge | grep -q ready"},
			{line: "penstock fleet", needs: "etcd etcdctl", says: []string{"1 relay: 1 ready"}},
			{line: "go get", why: "before the first release there is no such module"},
		},
	},
	"CONTRIBUTING.md": {lines: []special{{line: "", why: "runs the check, its tests, or a release"}}},
	"SECURITY.md":     {lines: []special{{line: "", why: "needs a release"}}},
	"bench/README.md": {lines: []special{{line: "", why: "measures for minutes"}}},
	"docs/configuration.md": {
		first: "cp /mnt/repository/docs/examples/layers/*.yaml .",
		lines: []special{{line: "penstock run", until: "(: </dev/tcp/127.0.0.1/443)"}},
	},
	"docs/commands.md": {lines: []special{{line: "penstock drain", block: true, why: "shows a busy daemon"}}},
	"docs/faults.md":   {lines: []special{{line: "make", why: "tries faults for an hour"}}},
	"docs/fleet.md": {
		needs: "etcd etcdctl python3 curl",
		lines: []special{
			{line: "PORT=8000 penstock publish -c edge", says: []string{"published version 1"}},
			{line: "penstock fleet status; curl", says: []string{"3 relays: 3 ready", "200 OK"}},
			{line: "PORT=8000 penstock publish -c worse", code: "3", says: []string{"member tcp://127.0.0.1:9003  new", "version 2 was taken back: "}},
			{line: "PORT=8000 penstock publish -c fewer", code: "0|3"}, // 3: on a machine so busy that a relay is silent
			{line: "penstock rollback --wait", as: "[ $code != 0 ] || penstock rollback --wait 30s $PENSTOCK_FLEET", code: "0|3"},
			{line: "kill $(cat etcd.pid)", says: []string{"200 OK"}},
			{line: `etcd --data-dir "$(mktemp`, first: "while (: </dev/tcp/127.0.0.1/2379) || (: </dev/tcp/127.0.0.1/2380); do sleep 0.1; done 2>/dev/null # the one of the five minutes takes a while to end"},
			{line: "kubectl", block: true, why: "needs a cluster"},
			{line: "consul agent", block: true, why: "needs Consul"},
			{line: "docker", block: true, why: "needs Docker; make docker does it"},
			{line: "penstock publish -c penstock.yaml etcd:", first: "cp edge.yaml penstock.yaml; ip addr add 10.0.0.1/32 dev lo; export PORT=8000\npenstock relay tcp://10.0.0.1:2379 tcp://127.0.0.1:2379 &\nuntil curl -sf -o /dev/null http://10.0.0.1:2379/health; do sleep 0.05; done"},
			{line: "penstock run -c etcd://10.0.0.1:2379/penstock/edge --state", until: "(: </dev/tcp/127.0.0.1/8000)"},
			{line: "penstock run -c etcd://10.0.0.1:2379/penstock/edge -c", first: "echo 'admin: {listen: \"unix:///tmp/own.sock\"}' >/etc/penstock/own.yaml", until: "penstock status --admin unix:///tmp/own.sock >/dev/null"},
			{line: "penstock publish -c penstock.yaml -m", first: "sed -i s/9002/9004/ penstock.yaml", says: []string{"published version 2"}},
			{line: "penstock rollback etcd:", says: []string{"published version 3"}},
			{line: "penstock publish -c penstock.yaml --canary", why: "needs relays with clients; the five minutes have one"},
			{line: "export PENSTOCK_FLEET=etcd://10", first: "export PENSTOCK_FLEET=etcd://10.0.0.1:2379/penstock/edge\nPORT=8007 penstock run -c etcd://10.0.0.1:2379/penstock/edge --node relay-7 --state /tmp/relay-7 >/tmp/relay-7.log 2>&1 &\nuntil penstock fleet status 2>/dev/null | grep -q '2 relays: 2 ready'; do sleep 0.1; done"},
			{line: "penstock fleet reload", why: "needs relays with files"},
			{line: "penstock fleet drain relay-7", as: "penstock fleet drain relay-7 --why 'new disk' --max-unavailable 50%", says: []string{"drained 1 relay"}},
			{line: "penstock fleet undrain relay-7", says: []string{"undrained 1 relay"}},
			{line: "(", block: true, why: "needs three hosts"},
		},
	},
	"docs/install.md": {
		first: "mkdir -p /etc/penstock /run/penstock && cp /mnt/repository/packaging/penstock.yaml /etc/penstock",
		lines: []special{
			{line: "sudo", why: "needs a release"},
			{line: "docker", why: "needs a release"},
			{line: "tar", block: true, why: "needs a release"},
			{line: "CGO_ENABLED=0 go install", why: "needs a release"},
			{line: "printf", needs: "nc", first: "penstock run -c /etc/penstock/penstock.yaml &\nuntil penstock status >/dev/null 2>&1; do sleep 0.05; done"},
			{line: "penstock explain", as: "penstock explain -c /etc/penstock/penstock.yaml --listener try --sni www.example.org"},
			{line: "make dist", why: "makes a release"},
		},
	},
	"docs/migration.md": {
		first: `mkdir -p /etc/haproxy /etc/nginx
printf '%s\n' 'listen web' ' mode tcp' ' bind 127.0.0.1:8443' ' server a 127.0.0.1:9001' >/etc/haproxy/haproxy.cfg
echo 'stream { server { listen 127.0.0.1:8443; proxy_pass 127.0.0.1:9001; } }' >/etc/nginx/nginx.conf`,
		lines: []special{{line: "penstock explain", as: "penstock explain -c penstock.yaml --listener listener-8443 --sni www.example.org"}},
	},
	"docs/observing.md": {
		lines: []special{
			{line: "penstock flows", block: true, why: "shows a busy daemon"},
			{line: "penstock flow ", block: true, why: "shows a busy daemon"},
		},
	},
	"docs/running.md": {
		lines: []special{
			{line: "penstock run", until: "penstock status >/dev/null"},
			{line: "penstock relay --replies", until: "grep -q ':0035 ' /proc/net/udp6"},
		},
	},
	"docs/sandbox.md": {
		needs: "curl jq useradd pgrep",
		lines: []special{
			{line: "penstock status | grep", says: []string{"sandbox        no-new-privs"}},
			{line: "curl", says: []string{`"held": true`}},
			{line: "grep -E", says: []string{"Uid:", "NoNewPrivs:\t1", "Seccomp:\t2"}},
			{line: "journalctl", block: true, why: "needs a kernel that has refused something"},
		},
	},
	"docs/tls.md": {
		needs: "openssl curl python3",
		lines: []special{
			{line: "penstock check", says: []string{"good: 1 listener, 1 group"}},
			{line: "curl", says: []string{"Directory listing"}},
			{line: "certbot", block: true, why: "needs a public name"},
			{line: "psql", why: "needs PostgreSQL with a certificate"},
		},
	},
	"docs/upgrades.md": {
		needs: "pkill",
		lines: []special{
			{line: "echo hello", says: []string{"hello\n"}},
			{line: `echo "after the crash"`, says: []string{"after the crash\n"}},
			{line: `echo "after the upgrade"`, says: []string{"after the upgrade\n"}},
			{line: "penstock status", says: []string{"1 crash", "1 upgrade"}},
			{line: "penstock upgrade", block: true, why: "needs a packaged daemon; the block before does the same"},
			{line: "docker", why: "needs a container"},
		},
	},
}

// etcdAt starts an etcd at an address of the machine.
func etcdAt(ip string) string {
	at := "http://" + ip + ":2379"
	return "etcd --data-dir /tmp/etcd --listen-client-urls " + at + " --advertise-client-urls " + at + " >/tmp/etcd.log 2>&1 &\n" +
		"until etcdctl --endpoints " + at + " endpoint health >/dev/null 2>&1; do sleep 0.2; done"
}

// commandPages returns the text of each page that is for readers who type, by its path from the root of the repository.
func commandPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "docs/*.md"} {
		names, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(filepath.Join("..", ".."), name)
			if err != nil {
				t.Fatal(err)
			}
			pages[rel] = string(text)
		}
	}
	return pages
}

// Every command in the documents works as it stands there, pasted into one shell, page by page, on a machine of its own.
func TestDocsCommands(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("half a minute of shells; what daemons do in them, other tests have them do under the race detector")
	}
	pages := commandPages(t)
	for name := range specialPages {
		if _, ok := pages[name]; !ok {
			t.Errorf("there is no page %s", name)
		}
	}
	for name, text := range pages {
		special := specialPages[name]
		if special == nil {
			special = &page{}
		}
		p := special.plan(blocks(name, text))
		for _, line := range p.unused {
			t.Errorf("%s has no line that begins with %q", name, line)
		}
		for _, c := range p.skipped {
			if err := checkCommand(c.command); err != nil {
				t.Errorf("%s:%d: %s: %v", name, c.line, c.command, err)
			}
		}
		if !p.runs {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need(t, append(strings.Fields(special.needs), "unshare", "ip", "bash")...)
			out, err := runApart(t, p.script)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
			rest := out
			for _, want := range p.answers {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("%q is not there in time", want)
				}
				rest = after
			}
		})
	}
}

var (
	ofPenstock = regexp.MustCompile(`(?:^|[ (])(?:\S*/)?penstock ([a-z]+(?: [^|;&>#)]*)?)(?:[|;&>#)]|$)`)
	ofGo       = regexp.MustCompile(`^(?:.* )?go run \./(\S+)([^|#]*)`)
	ofGoTest   = regexp.MustCompile(`^go test .*?\./(\S+)(?: .*?-run (\S+))?(?: .*?-fuzz (\S+))?`)
	ofMake     = regexp.MustCompile(`^make ([a-z-]+)`)
	ofScript   = regexp.MustCompile(`^(?:sudo |\w+=\S+ )*((?:bench|\.ci)/\S+)`)
	goFlag     = regexp.MustCompile(` -([a-z]+)`)
)

// ofOurs finds what is imported of this repository.
var ofOurs = regexp.MustCompile(`(?m)^\t(?:\w+ )?"github\.com/penstock/penstock/(bench/\S+)"$`)

// sourceOf returns the text of a package; empty: there is none.
func sourceOf(folder string) (all []byte, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, name := range names {
		text, e := os.ReadFile(name)
		if e != nil {
			return nil, e
		}
		all = append(all, text...)
	}
	return all, err
}

// checkCommand checks of a command that is not run that it exists, and has its flags.
func checkCommand(command string) error {
	root := filepath.Join("..", "..")
	command = strings.Replace(command, "go run ./cmd/penstock ", "penstock ", 1)
	if m := ofPenstock.FindStringSubmatch(command); m != nil && !ofGo.MatchString(command) {
		if out, err := exec.Command("bash", "-c", `exec "$0" `+m[1]+" --help", binary).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if m := ofGo.FindStringSubmatch(command); m != nil {
		all, err := sourceOf(filepath.Join(root, m[1]))
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("there is no program %s", m[1])
		}
		// Programs that measure or try have flags in common, which packages that they import add to theirs.
		for _, imported := range ofOurs.FindAllSubmatch(all, -1) {
			text, err := sourceOf(filepath.Join(root, string(imported[1])))
			if err != nil {
				return err
			}
			if bytes.Contains(text, []byte("*flag.FlagSet")) {
				all = append(all, text...)
			}
		}
		for _, flag := range goFlag.FindAllStringSubmatch(m[2], -1) {
			if flag[1] != "h" && !regexp.MustCompile(`\.\w+\([^"\n]*"`+flag[1]+`",`).Match(all) {
				return fmt.Errorf("%s has no flag -%s", m[1], flag[1])
			}
		}
	}
	if m := ofGoTest.FindStringSubmatch(command); m != nil {
		tests, err := filepath.Glob(filepath.Join(root, m[1], "*_test.go"))
		if err != nil || len(tests) == 0 {
			return fmt.Errorf("there are no tests of %s", m[1])
		}
		var all []byte
		for _, name := range tests {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all = append(all, text...)
		}
		for _, name := range m[2:] {
			if strings.HasPrefix(name, "'") { // no test
				continue
			}
			if !bytes.Contains(all, []byte("\nfunc "+name)) {
				return fmt.Errorf("%s has no %s", m[1], name)
			}
		}
	}
	if m := ofMake.FindStringSubmatch(command); m != nil {
		text, err := os.ReadFile(filepath.Join(root, "Makefile"))
		if err != nil || !bytes.Contains(text, []byte("\n"+m[1]+":")) {
			return fmt.Errorf("there is no target %s: %w", m[1], err)
		}
	}
	if m := ofScript.FindStringSubmatch(command); m != nil {
		_, err := os.Stat(filepath.Join(root, m[1]))
		return err
	}
	return nil
}

func TestCheckCommand(t *testing.T) {
	testnet.OneGoroutine(t)
	for command, good := range map[string]bool{
		"penstock run -c f.yaml":                                  true,
		"docker exec relay /usr/bin/penstock upgrade --binary /x": true,
		"penstock run --no-such f.yaml":                           false,
		"penstock walk":                                           false,
		"go run ./bench/relay -loads bulk1m -rounds 3   # -x":     true,
		"go run ./cmd/penstock check -c f.yaml":                   true,
		"go run ./cmd/penstock check --no-such":                   false,
		"go run ./bench/relay -lods bulk1m":                       false,
		"GOMAXPROCS=1 go run ./bench/no-such":                     false,
		"go test -count=1 ./cmd/penstock -run TestUsage -update":  true,
		"go test ./cmd/penstock -run TestNoSuch":                  false,
		"go test ./clienthello -run '^$' -fuzz FuzzHello # x":     true,
		"go test ./clienthello -run '^$' -fuzz FuzzNoSuch":        false,
		"go test ./no-such":                                       false,
		"make check  # all":                                       true,
		"make no-such":                                            false,
		"sudo bench/install-peers.sh":                             true,
		".ci/no-such v1":                                          false,
		"kubectl get pods":                                        true,
	} {
		if err := checkCommand(command); (err == nil) != good {
			t.Errorf("%s: %v", command, err)
		}
	}
}
