package admin

import (
	"net/http"
	"net/url"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Every change says who asked for it: the user and the process at the Unix socket, the
// address that showed the full token.
func TestChangesNameTheirActor(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	onUnix := me.Username + ", pid " + strconv.Itoa(os.Getpid())
	if runtime.GOOS != "linux" {
		onUnix = "the Unix socket"
	}
	member := "/v1/groups/backends/members/" + url.PathEscape(memberName(0))
	for _, c := range []struct{ method, path, body, kind, message string }{
		{"PATCH", member, `{"state":"drain"}`, "member", "was set to drained, weight 10"},
		{"PATCH", "/v1/listeners/web/routes/canary", `{"weights":{"refuse":0}}`, "split", "was set to backends 100%, refuse 0%"},
		{"DELETE", "/v1/flows/3", "", "kill", "the flow was ended"},
		{"DELETE", "/v1/flows?listener=dns", "", "kill", "flows ended"},
		{"PUT", "/v1/log", `{"level":"debug"}`, "log", "the level of the log was set to debug"},
		{"POST", "/v1/drain", "", "drain", "drain requested"},
	} {
		r := newRig(t, &synthetic{flows: 20, members: 3})
		if got := r.ask(c.method, c.path, c.body); got.status != 200 {
			t.Fatalf("%s %s: %d %s", c.method, c.path, got.status, got.body)
		}
		req, err := http.NewRequest(c.method, "http://"+r.tcp+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		got := r.do(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, req)
		events := r.events.After(0).Events
		if len(events) == 0 || events[0].Kind != c.kind || events[0].By != onUnix || !strings.Contains(events[0].Message, c.message) {
			t.Errorf("%s %s: events are %+v, want one of %q by %q", c.method, c.path, events, c.message, onUnix)
		}
		if got.status != 200 {
			continue // the flow has ended already
		}
		if last := events[len(events)-1]; len(events) < 2 || !strings.HasPrefix(last.By, "full token, 127.0.0.1:") {
			t.Errorf("%s %s over TCP: events are %+v", c.method, c.path, events)
		}
	}
}
