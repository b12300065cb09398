//go:build attack

package app

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testattack"
	"github.com/penstock/penstock/sandbox"
)

// narrow takes a port that members have, PENSTOCK_NARROW, out of a policy, as if nobody had declared it.
func narrow(p *sandbox.Policy) {
	if port, err := strconv.Atoi(os.Getenv("PENSTOCK_NARROW")); err == nil {
		p.Connect = slices.DeleteFunc(p.Connect, func(n uint16) bool { return int(n) == port })
	}
}

// attack does, from inside the process that relays, what whoever has taken it over would try, and logs what was not refused: the attempts of
// package testattack, on two threads, and some that are about this process. It is in binaries for tests only. PENSTOCK_ATTACK is
// a folder, whose name is that of an abstract Unix socket, too, the address of a member, and one that is none, separated by spaces; with a fourth word the first worker leaves a configuration to
// the next one, with its log in another folder, and ends.
func attack(l *lifecycle) {
	parameters := strings.Fields(os.Getenv("PENSTOCK_ATTACK"))
	if len(parameters) < 3 || l.d.sandboxed.Held() == nil {
		return
	}
	if len(parameters) > 3 {
		if l.keeping.First() {
			evil := *l.d.active.Load().Config
			evil.Text = bytes.ReplaceAll(evil.Text, []byte("/log/"), []byte("/elsewhere/"))
			l.log.Info("attack", "left", l.keeping.SaveConfig(&evil, nil) == nil)
			l.lines.Close() // writes what is queued
			os.Exit(cli.ExitFailed)
		}
		l.log.Info("attack over")
		return
	}
	dir, member, other := parameters[0], parameters[1], parameters[2]
	_, text, _ := net.SplitHostPort(other)
	port, _ := strconv.Atoi(text)
	target := testattack.Target{PID: os.Getppid(), File: filepath.Join(dir, "elsewhere/secret"), Folder: filepath.Join(dir, "elsewhere"), Port: port, Abstract: filepath.Base(dir)}
	attempted := 0
	tell := func(r testattack.Result) {
		if attempted++; !r.Refused { // the others would be more lines than the log takes in a second
			l.log.Info("attack", "what", r.Name, "errno", r.Errno, "result", r.Text)
		}
	}
	attempts := func() {
		for _, r := range testattack.Run(target) {
			tell(r)
		}
		mark := host.CheckSocketOptions(&spec.Dial{Mark: 7})
		_, ask := l.keeping.Asker(earlykeeper.Append)("/etc/passwd")
		_, read := l.keeping.Asker(earlykeeper.Read)(target.File)
		write := os.WriteFile(filepath.Join(dir, "etc/penstock.yaml"), nil, 0o600)
		for name, err := range map[string]error{"mark a socket": mark, "ask the keeper for a log": ask, "ask the keeper for a file": read, "write its configuration": write} {
			tell(testattack.Result{Name: name, Text: textOf(err), Refused: err != nil})
		}
	}
	attempts()
	done := make(chan struct{})
	go func() { // on a thread that begins now, and ends with the goroutine
		defer close(done)
		runtime.LockOSThread()
		attempts()
	}()
	<-done
	// What it needs works.
	c, err := net.Dial("tcp", member)
	if err == nil {
		c.Close()
	}
	_, _, load := l.load()
	for name, err := range map[string]error{"connect to a member": err, "read its configuration": load} {
		if err != nil {
			l.log.Error("attack", "needs", name, "error", err)
		}
	}
	l.log.Info("attack over", "attempts", attempted)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
