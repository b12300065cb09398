package earlykeeper

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// Clients of the admin API's Unix socket are answered, and of nothing else that bears its label; those who come after resume
// are the next worker's.
func TestAnswerMeanwhile(t *testing.T) {
	testnet.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	own, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	public, err := tcp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer public.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	resume := answerMeanwhile("worker died (a \"text\"\n)", func(yield func(string, []int) bool) {
		for _, item := range []struct {
			label string
			fds   []int
		}{
			{"admin unix://" + path, []int{int(own.Fd())}}, {"admin unix:///pipe", []int{int(r.Fd())}}, {"admin unix:///tcp", []int{int(public.Fd())}},
			{"admin unix:///gone", []int{-1}}, {"admin tcp://127.0.0.1:1", []int{int(public.Fd())}}, {"config", []int{int(r.Fd())}},
		} {
			yield(item.label, item.fds)
		}
	})
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	for range 3 {
		resp, err := (&http.Client{Transport: transport}).Get("http://penstock/v1/status")
		if err != nil {
			t.Fatal(err)
		}
		var problem struct {
			Status int    `json:"status"`
			Detail string `json:"detail"`
		}
		err = json.NewDecoder(resp.Body).Decode(&problem)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 503 || problem.Status != 503 || problem.Detail != `no worker runs: worker died (a "text"?); the daemon's log says more` {
			t.Errorf("%v, %+v, %v", resp.Status, problem, err)
		}
	}
	resume()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
}
