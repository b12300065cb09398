package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// otherYAML are the blocks of YAML that are no configuration, and no keys of its highest level: how they begin, by page, and why.
var otherYAML = map[string]map[string]string{
	"docs/metrics.md": {"receivers:": "is for Alertmanager"},
	"docs/tls.md": {
		"tickets:": "is a part of a listener's tls",
		"routes:":  "is a part of a listener",
	},
}

var (
	// topKey matches a line that has a key of the highest level.
	topKey = regexp.MustCompile(`^[a-z][a-z-]*:( |$)`)
	// harmless matches what check says of a file that a reader has, and a warning.
	harmless = regexp.MustCompile(`: no such file(: |; |$)|: warning: `)
)

// isConfiguration reports whether the block is a configuration, or has keys of one with all that is below them.
func (b block) isConfiguration() bool {
	for _, line := range b.text {
		if !strings.HasPrefix(line, "#") {
			return (b.isYAML() || b.lang == "") && topKey.MatchString(line)
		}
	}
	return false
}

// checkYAML gives a text to penstock check. One without listeners changes a configuration that has one. It returns what is wrong.
func checkYAML(t *testing.T, text string) (wrong []string) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cmd := exec.Command(binary, "check")
	if !strings.Contains("\n"+text, "\nlisteners:") {
		cmd.Args = append(cmd.Args, "-c", write("base.yaml", `listeners: {any: {listen: "tcp://127.0.0.1:7000", to: "discard:"}}`))
	}
	cmd.Args = append(cmd.Args, "-c", write("page.yaml", text))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	good := false // it has failed because of files only
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); harmless.MatchString(line) {
			good = true
		} else {
			wrong = append(wrong, line)
		}
	}
	if !good && len(wrong) == 0 {
		wrong = append(wrong, fmt.Sprint(err))
	}
	return wrong
}

// Every configuration in the documents is one, but for files that a reader has and this machine has not.
func TestDocsYAML(t *testing.T) {
	testnet.OneGoroutine(t)
	checked := 0
	pages := commandPages(t)
	for name, text := range pages {
		used := map[string]bool{}
	next:
		for _, b := range blocks(name, text) {
			if !b.isConfiguration() {
				continue
			}
			text := strings.Join(b.text, "\n")
			for begins := range otherYAML[name] {
				if strings.HasPrefix(text, begins) {
					used[begins] = true
					continue next
				}
			}
			checked++
			for _, line := range checkYAML(t, text) {
				t.Errorf("%s:%d: %s", name, b.line, line)
			}
		}
		for begins := range otherYAML[name] {
			if !used[begins] {
				t.Errorf("%s has no block that begins with %q", name, begins)
			}
		}
	}
	for name := range otherYAML {
		if _, ok := pages[name]; !ok {
			t.Errorf("there is no page %s", name)
		}
	}
	if checked < 15 {
		t.Errorf("%d configurations", checked)
	}
}

func TestCheckYAML(t *testing.T) {
	testnet.OneGoroutine(t)
	for text, good := range map[string]bool{
		"keeper: {}": true,
		"keepr: {}":  false,
		"groups: {web: {members: [tcp://10.0.0.1:80], balance: p3c}}":                 false,
		"listeners: {a: {listen: tcp://127.0.0.1:1, to: b}}":                          false,
		"listeners: {a: {listen: tcp://127.0.0.1:1, to: tcp://10.0.0.1:1}}":           true,
		"admin: {listen: tcp://127.0.0.1:9180, token-file: /no/such/file}":            true,
		"admin: {listen: tcp://127.0.0.1:9180, token-file: /no/such/file, tokens: 1}": false,
	} {
		if wrong := checkYAML(t, text); (wrong == nil) != good {
			t.Errorf("%s: %q", text, wrong)
		}
	}
}
