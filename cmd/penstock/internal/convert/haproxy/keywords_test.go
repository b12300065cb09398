package haproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// Each keyword that HAProxy says it knows is converted, or listed, or on the list of those that
// change nothing; and options are read with as many words as HAProxy gives them.
func TestHAProxyKeywords(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed")
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte("listen l\n bind 127.0.0.1:1\n mode tcp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(haproxy, "-dKcfg", "-q", "-c", "-f", file).CombinedOutput()
	if !strings.Contains(string(out), "server <name> <addr> check") {
		t.Skip("this haproxy does not list its keywords")
	}
	n := 0
	changes := func(with, without string) bool {
		return testconvert.Outcome(Reader, "h.cfg", with) != testconvert.Outcome(Reader, "h.cfg", without)
	}
	test := func(key, where, word string, of func(more string) []string) {
		n++
		with, without := of(word), of("")
		for i := range with {
			if changes(with[i], without[i]) {
				return
			}
		}
		if word, _, _ := strings.Cut(word, " "); !nothing(where, word) {
			t.Errorf("%s changes nothing, and is not listed", strings.TrimSpace(key))
		}
	}
	global := false
	for line := range strings.Lines(string(out)) {
		section := !strings.HasPrefix(line, "\t")
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#" || strings.HasPrefix(words[0], "http-"):
		case section:
			global = words[0] == "global"
		case words[0] == "ca-base" || words[0] == "crt-base" || words[0] == "tcp-check" || words[0] == "timeout" || words[0] == "rate-limit" || strings.Contains(line, "tcpka-"):
			// What they do depends on other lines, or on their values.
		case global:
			test(line, "global", words[0]+" 1", func(more string) []string { return []string{keywords(more, "", "", "")} })
		case words[0] == "option":
			test(line, "option", words[1], func(more string) []string {
				return []string{keywords("", strings.TrimSpace("option "+more), "", ""), keywords("", "option persist\noption "+more, "", "")}
			})
		case words[0] == "bind":
			words = words[2:]
			if words[0] == "ssl" && len(words) > 1 {
				words = words[1:]
			}
			test(line, "bind", option(t, line, words, bindWords), func(more string) []string {
				const tls = "ssl crt /a.pem ca-file /b.pem verify required "
				return []string{keywords("", "", more, ""), keywords("", "", tls+more, ""), keywords("", "bind [::]:2 "+more, "", "")}
			})
		case words[0] == "server" && words[3] != "usesrc": // which follows source
			test(line, "server", option(t, line, words[3:], serverWords), func(more string) []string {
				return []string{
					keywords("", "", "", more), keywords("", "", "", "check "+more), keywords("", "", "", "check check-ssl ca-file /a.pem "+more),
					keywords("", "", "", "ssl ca-file /a.pem sni str(a.example) check observe layer4 maxconn 1 "+more),
					keywords("", "", "", "ssl verify none send-proxy check check-ssl check-send-proxy tfo backup disabled "+more),
					keywords("", "", "", "check port 2 send-proxy check-send-proxy "+more),
					keywords("", "", "", "agent-port 1 "+more), keywords("", "", "", "agent-check agent-port 1 "+more),
				}
			})
		case words[0] != "server":
			test(line, "proxy", strings.Join(append(words, "1"), " "), func(more string) []string { return []string{keywords("", more, "", "")} })
		}
	}
	if n < 200 {
		t.Errorf("only %d keywords", n)
	}
}

// option returns an option with the value that it takes, which the converter must know to take.
func option(t *testing.T, line string, words []string, values map[string]bool) string {
	takes := len(words) > 1
	if values[words[0]] != takes {
		t.Errorf("%s: takes a value: %v", strings.TrimSpace(line), takes)
	}
	if !takes {
		return words[0]
	}
	if words[0] == "ssl-min-ver" {
		return words[0] + " TLSv1.3"
	}
	return words[0] + " 2"
}

// keywords is a configuration with a line more in global, one in a section, and options of bind and
// server.
func keywords(global, line, bind, server string) string {
	return "global\n " + global + "\nlisten l\n bind 127.0.0.1:1 " + bind + "\n " + line + "\n server s 192.0.2.1:1 " + server + "\n"
}
