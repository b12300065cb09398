//go:build linux

package proc

import (
	"os"
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
	if err := Wait("its child", testnet.Patience, func() bool {
		if children := Children(p.First()); len(children) > 0 {
			child = children[0]
		}
		return child != 0
	}); err != nil {
		t.Fatal(err)
	}
	first := p.First()
	syscall.Kill(child, syscall.SIGKILL)
	syscall.Kill(first, syscall.SIGKILL)
	<-ends
	if err := Wait("another start", testnet.Patience, func() bool { now := p.First(); return now != 0 && now != first && len(Children(now)) != 0 }); err != nil {
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

// A worker is new whatever its number is: numbers wrap.
func TestRenewAfterWrap(t *testing.T) {
	next := func(number string) {
		t.Helper()
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(number), 0); err != nil {
			t.Skip("only root may say which number comes next: ", err)
		}
	}
	next("30000")
	p := &Process{Argv: []string{"sh", "-c", "trap 'sleep 1000 &' USR1; sleep 1000 & while :; do wait; done"}, Dir: t.TempDir()}
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := Wait("its child", testnet.Patience, func() bool { return len(Children(p.First())) == 1 }); err != nil {
		t.Fatal(err)
	}
	next("1000")
	if err := Renew(p.First(), syscall.SIGUSR1, false, testnet.Patience); err != nil {
		t.Error(err)
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
