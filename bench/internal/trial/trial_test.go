//go:build linux

package trial

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestMetricsParser(t *testing.T) {
	m := ParseMetrics([]byte(`# HELP penstock_a_total A.
# TYPE penstock_a_total counter
penstock_a_total{listener="x",cause="y z"} 3
penstock_a_total{listener="x",cause="w"} 4
# TYPE penstock_g gauge
penstock_g{listener="x"} 1
# TYPE penstock_h histogram
penstock_h_bucket{listener="x",le="+Inf"} 2
penstock_h_sum{listener="x"} 1.5
`))
	if got := m.Sum("penstock_a_total", "listener")["x"]; got != 7 {
		t.Errorf("sum = %v", got)
	}
	for series, grows := range map[string]bool{`penstock_g{listener="x"}`: false, `penstock_h_sum{listener="x"}`: true, `penstock_a_total{listener="x",cause="w"}`: true} {
		if m.Grows[series] != grows {
			t.Errorf("%s may only grow: %v", series, m.Grows[series])
		}
	}
}

// A process that is killed is started again, until it is ended with whatever it has started.
func TestProcess(t *testing.T) {
	ends := make(chan error, 10)
	p := &Process{Argv: []string{"sh", "-c", "sleep 1000 & wait"}, Dir: t.TempDir(), Again: true, Ended: func(err error) { ends <- err }}
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	child := 0
	if err := Wait("its child", testnet.Patience, func() bool { child = Newest(p.First()); return child != 0 }); err != nil {
		t.Fatal(err)
	}
	first := p.First()
	syscall.Kill(child, syscall.SIGKILL)
	syscall.Kill(first, syscall.SIGKILL)
	<-ends
	if err := Wait("another start", testnet.Patience, func() bool { now := p.First(); return now != 0 && now != first && Newest(now) != 0 }); err != nil {
		t.Fatal(err)
	}
	tree := p.Tree()
	EndAll()
	for _, pid := range tree {
		if Alive(pid) {
			t.Errorf("%d is alive", pid)
		}
	}
	if !p.Over() || p.Failed() == nil || p.Begun() != 2 || len(ends) != 0 {
		t.Errorf("over: %v, %d starts, %d ends", p.Over(), p.Begun(), len(ends))
	}
}

// A program that cannot be started says so, and is over.
func TestNotStarted(t *testing.T) {
	p := &Process{Argv: []string{"/nothing"}, Dir: t.TempDir()}
	if err := p.Begin(); err == nil || !p.Over() {
		t.Errorf("%v", err)
	}
	p.Kill()
	new(Process).Kill()
	if code, killed := start(t, "exit 3").Stop(testnet.Patience); killed || code != 3 {
		t.Errorf("exit code %d, killed: %v", code, killed)
	}
}

func start(t *testing.T, script string) *Process {
	p := &Process{Argv: []string{"sh", "-c", script}, Dir: t.TempDir()}
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	return p
}
