package admin

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// Every alert leads to a section of the documentation about it.
func TestRunbooks(t *testing.T) {
	const base = "https://github.com/penstock/penstock/blob/main/docs/"
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
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			page, anchor, ok := strings.Cut(strings.TrimPrefix(r.Annotations["runbook_url"], base), "#")
			text, err := os.ReadFile(filepath.Join(docs, page))
			if !ok || err != nil || anchor != strings.ToLower(r.Alert) || !strings.Contains(string(text), "\n### "+r.Alert+"\n") {
				t.Errorf("%s: runbook_url %q leads to no section: %v", r.Alert, r.Annotations["runbook_url"], err)
			}
		}
	}
}

// The links to other sections in the part about alerts lead somewhere.
func TestRunbookLinks(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(docs, "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, alerts, _ := strings.Cut(string(b), "\n## Alerts\n")
	for _, m := range regexp.MustCompile(`\]\(([a-z]*(?:\.md)?)#([a-z0-9-]+)\)`).FindAllStringSubmatch(alerts, -1) {
		page := m[1]
		if page == "" {
			page = "operations.md"
		}
		text, err := os.ReadFile(filepath.Join(docs, page))
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		found := false
		for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
			slug := strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")
			if n := count[slug]; n > 0 {
				found = found || fmt.Sprintf("%s-%d", slug, n) == m[2]
			} else {
				found = found || slug == m[2]
			}
			count[slug]++
		}
		if !found {
			t.Errorf("%s has no section #%s", page, m[2])
		}
	}
}
