//go:build linux

package proc

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

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
