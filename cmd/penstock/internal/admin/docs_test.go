package admin

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/relay/stats"
	dto "github.com/prometheus/client_model/go"
	yaml "go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

// docs/metrics.md has the table of the code.
func TestMetricsAreDocumented(t *testing.T) {
	path := filepath.Join(docs, "metrics.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "<!-- table -->\n")
	_, tail, ok2 := strings.Cut(rest, "<!-- end -->\n")
	if !ok || !ok2 {
		t.Fatal("docs/metrics.md has no place for the table")
	}
	var b strings.Builder
	b.WriteString(head + "<!-- table -->\n| metric | type | labels | what it tells |\n|---|---|---|---|\n")
	for _, m := range descriptions() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, strings.ToLower(m.kind.String()), strings.Join(m.labels, ", "), m.help)
	}
	want := b.String() + "<!-- end -->\n" + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/metrics.md is behind the code; go test -run TestMetricsAreDocumented -update writes its table")
	}
}

// docs/metrics.md says of each reason for which datagrams are dropped what it is.
func TestDropsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for d := range (stats.Counts[stats.Drop]{}).All() {
		if strings.Count(string(text), "\n| `"+d.String()+"` | ") != 1 {
			t.Errorf("docs/metrics.md does not say what %s is", d)
		}
	}
}

// selector is a metric's name in PromQL, and what follows in braces.
var selector = regexp.MustCompile(`\b((?:penstock|go|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)

// matched is the name of a label in braces.
var matched = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)

// grouped are the labels that an aggregation keeps, or a join compares.
var grouped = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)

// checkQuery holds a query against the metrics of a real exposition.
func checkQuery(query string, known map[string][]string) (names, wrong []string) {
	all := []string{"job", "instance", "le"} // those that Prometheus adds
	found := selector.FindAllStringSubmatch(query, -1)
	for _, s := range found {
		name := s[1]
		labels, ok := known[name]
		if !ok {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, cut := strings.CutSuffix(name, suffix); cut && known[base+" histogram"] != nil {
					labels, ok = known[base+" histogram"], true
				}
			}
		}
		if !ok {
			wrong = append(wrong, "there is no metric "+name)
		}
		for _, l := range matched.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(all[:3], l[1]) {
				wrong = append(wrong, name+" has no label "+l[1])
			}
		}
		all = append(all, labels...)
		names = append(names, name)
	}
	for _, g := range grouped.FindAllStringSubmatch(query, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(all, l) {
				wrong = append(wrong, "no metric has the label "+l)
			}
		}
	}
	if strings.Count(query, "(") != strings.Count(query, ")") {
		wrong = append(wrong, "brackets do not match: "+query)
	}
	return names, wrong
}

// knownMetrics are names and labels of a real exposition.
func knownMetrics(t *testing.T) map[string][]string {
	_, families := scrape(t, newRig(t, &synthetic{flows: 3, members: 3}))
	known := map[string][]string{}
	for name, f := range families {
		labels := []string{} // not nil: known
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			name += " histogram"
		}
		known[name] = labels
	}
	return known
}

func TestDashboardOfGrafana(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(docs, "grafana", "penstock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d any
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	known := knownMetrics(t)
	used := map[string]bool{}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if title, ok := v["title"].(string); ok {
				where = title
			}
			for key, x := range v {
				if text, ok := x.(string); ok && (key == "expr" || key == "query" || key == "definition") {
					names, wrong := checkQuery(text, known)
					for _, w := range wrong {
						t.Errorf("%s: %s", where, w)
					}
					for _, name := range names {
						used[name] = true
					}
				}
				walk(where, x)
			}
		case []any:
			for _, x := range v {
				walk(where, x)
			}
		}
	}
	walk("", d)
	if len(used) < 30 {
		t.Errorf("only %d metrics are shown: %v", len(used), used)
	}
}

func TestAlerts(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(docs, "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	known := knownMetrics(t)
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			names, wrong := checkQuery(r.Expr, known)
			for _, w := range wrong {
				t.Errorf("%s: %s", r.Alert, w)
			}
			if len(names) == 0 && !strings.HasPrefix(r.Expr, "up{") {
				t.Errorf("%s asks for no metric: %s", r.Alert, r.Expr)
			}
			if r.For == "" || r.Annotations["summary"] == "" || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s is not complete: %+v", r.Alert, r)
			}
		}
	}
	if rules < 10 {
		t.Errorf("%d rules", rules)
	}
}

// The check itself finds what is wrong.
func TestQueriesAreChecked(t *testing.T) {
	known := map[string][]string{"penstock_a_total": {"group"}, "penstock_h histogram": {"route"}}
	for query, bad := range map[string]bool{
		`rate(penstock_a_total{group="x",instance=~"y"}[5m])`:          false,
		`sum by (le, route) (rate(penstock_h_bucket{route!="x"}[5m]))`: false,
		`penstock_b_total`:                   true,
		`penstock_h`:                         true,
		`penstock_a_total_bucket`:            true,
		`penstock_a_total{member="x"}`:       true,
		`sum by (member) (penstock_a_total)`: true,
		`sum(penstock_a_total`:               true,
	} {
		if _, wrong := checkQuery(query, known); len(wrong) > 0 != bad {
			t.Errorf("%s: %v", query, wrong)
		}
	}
}
