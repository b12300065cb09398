package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// SIGTERM while the keeper executes its new binary ends the daemon. The worker does not go on alone.
func TestStopAfterUpgrade(t *testing.T) {
	t.Parallel()
	for range 6 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			k := runKeeper(t, "", `listeners: {tcp: {listen: "tcp://127.0.0.1:0", to: "echo:"}}`)
			k.showLog()
			at := k.at("tcp")
			var upgrade sync.WaitGroup
			upgrade.Go(func() { k.command("upgrade") })
			defer upgrade.Wait()
			testwait.Until(t, "the keeper executes", func() bool { // or did, if this is too slow to see it
				for range 1000 {
					b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", k.cmd.Process.Pid))
					if _, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil { // it was executed by the number of a descriptor
						return true
					}
				}
				k.mu.Lock()
				defer k.mu.Unlock()
				return slices.ContainsFunc(k.lines, func(l map[string]any) bool { return l["event"] == "keeper-upgraded" })
			})
			k.signal(syscall.SIGTERM)
			testwait.Until(t, "nobody listens any more", func() bool {
				c, err := net.Dial("tcp", at.String())
				if err == nil {
					c.Close()
				}
				return err != nil
			})
		})
	}
}
