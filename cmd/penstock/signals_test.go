package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// A SIGTERM among many SIGHUP ends the daemon as one alone does: they do not displace it, and they
// do not kill a daemon that is about to exit.
func TestSignalFlood(t *testing.T) {
	t.Parallel()
	var groups strings.Builder // a reload takes a while
	for i := range 2000 {
		fmt.Fprintf(&groups, "  g%d: {members: [\"tcp://127.0.0.1:%d\"]}\n", i, 1+i)
	}
	d := runFile(t, "reload: {watch: false}\nlisteners: {a: {listen: \"tcp://127.0.0.1:0\", to: g1}}\ngroups:\n"+groups.String())
	stop, stopped := make(chan struct{}), make(chan struct{})
	flood := func(n int) {
		for range n {
			d.cmd.Process.Signal(syscall.SIGHUP)
		}
	}
	flood(1000)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				flood(1)
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	d.wait("reloaded", 1)
	d.signal(syscall.SIGTERM)
	d.mustExit(0)
}
