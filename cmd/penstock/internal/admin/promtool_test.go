package admin

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v4"
)

// promtool runs the tool of Prometheus, which .ci/run installs.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian package prometheus)")
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Prometheus accepts the metrics, with their names and help texts.
func TestPromtoolMetrics(t *testing.T) {
	text, _ := scrape(t, newRig(t, &synthetic{flows: 3, members: 3}))
	promtool(t, text, "check", "metrics")
}

// Prometheus accepts the alert rules, and they fire when they should.
func TestPromtoolAlerts(t *testing.T) {
	rules, err := filepath.Abs(filepath.Join(docs, "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", "--lint-fatal", rules)
	tests, err := os.ReadFile("testdata/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(string(tests), "[ALERTS]", "["+rules+"]", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "test", "rules", file)
}

// grafanaVariable is a variable in a query of the Grafana dashboard.
var grafanaVariable = regexp.MustCompile(`\$\{?(\w+)\}?`)

// Prometheus accepts every query of the Grafana dashboard: as a rule it can be checked without
// a server.
func TestPromtoolDashboard(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(docs, "grafana", "penstock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard any
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	type rule struct{ Record, Expr string }
	var rules []rule
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if expr, ok := v["expr"].(string); ok {
				expr = grafanaVariable.ReplaceAllStringFunc(expr, func(v string) string {
					if strings.Contains(v, "interval") {
						return "5m"
					}
					return ".*"
				})
				rules = append(rules, rule{fmt.Sprintf("query%d", len(rules)), expr})
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(dashboard)
	if len(rules) < 50 {
		t.Errorf("only %d queries", len(rules))
	}
	var file strings.Builder
	file.WriteString("groups:\n- name: queries\n  rules:\n")
	for _, r := range rules {
		expr, err := json.Marshal(r.Expr) // a string of JSON is one of YAML
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&file, "  - {record: %s, expr: %s}\n", r.Record, expr)
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", "--lint-fatal", path)
}

// Every alert leads to a section of docs/runbooks.md, and every section is about an alert, in the order of the rules.
func TestRunbooks(t *testing.T) {
	const page = "https://github.com/penstock/penstock/blob/main/docs/runbooks.md#"
	b, err := os.ReadFile(filepath.Join(docs, "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			if got, want := r.Annotations["runbook_url"], page+strings.ToLower(r.Alert); got != want {
				t.Errorf("%s: runbook_url %q, want %q", r.Alert, got, want)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(docs, "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, m[1])
	}
	if !slices.Equal(sections, alerts) {
		t.Errorf("docs/runbooks.md has sections about\n%q,\nand the alerts are\n%q", sections, alerts)
	}
}
