package console

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func TestSplitCommand(t *testing.T) {
	d := newDaemon()
	r := newRig(t, d)
	contains(t, r.good("split"), "No route has several parts.")
	numbers := api.Numbers{Flows: 12, Begun: 3456}
	d.parts = []api.Part{{Name: "blue", Weight: 95, FileWeight: 95, Numbers: numbers}, {Name: "tcp://10.0.0.1:80?a=b", Weight: 5, FileWeight: 5}, {Name: "refuse", Refuse: true}}
	listener := d.status.Listeners[0].Name
	contains(t, r.good("split"), listener+"/default", "blue", "95%", "3,456", "refuse", "0%")
	contains(t, r.good("split", listener, "blue=50", "tcp://10.0.0.1:80?a=b=50"), "50%", "95")
	contains(t, r.good("split", listener+"/default", "blue=95", "refuse=1"), "65.0685%")
	var l api.Listeners
	if err := json.Unmarshal([]byte(r.good("split", listener, "--restore", "--json")), &l); err != nil || len(l.Listeners) != 1 || l.Listeners[0].Routes[0].Parts[1].Weight != 5 {
		t.Errorf("%+v, %v", l, err)
	}
	for want, args := range map[string][]string{
		"invalid weight":               {"split", listener, "blue"},
		"--restore: allowed: with":     {"split", "--restore"},
		"those that penstock split sh": {"split", listener + "/none"},
		"no route":                     {"split", listener + "/none", "blue=1"},
	} {
		if code, _, out := r.run(args...); code == exitOK || !strings.Contains(out, want) {
			t.Errorf("penstock %s: %d, %s, want %s", strings.Join(args, " "), code, out, want)
		}
	}
	contains(t, r.good("diff"), "route http/default: green has weight 50 instead of 5")
}
