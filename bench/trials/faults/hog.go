//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/child"
)

// oomLimit is the limit of the cgroup in which memory is exhausted.
const oomLimit = 96 << 20

// exhaust makes a process take the memory of the relay's cgroup, until the kernel has killed one that carries
// traffic for it. It returns how many were killed.
func (w *testbed) exhaust() (kills int, err error) {
	for _, pid := range w.service.Workers() { // a master may be larger
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0); err != nil {
			return 0, err
		}
	}
	group := w.service.launch.Cgroup
	cmd, err := child.Command("hog", group)
	if err != nil {
		return 0, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	w.service.helper.Store(int64(cmd.Process.Pid))
	stop := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	stop.Stop()
	w.service.helper.Store(0)
	kills = oomKills(group)
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() && kills > 1 {
		return kills - 1, nil // it was the next one, as what was killed had little
	}
	if err != nil {
		return 0, fmt.Errorf("take all memory: %w: %s", err, said.String())
	}
	return kills, nil
}

// hog is the child. It fills half of the cgroup with a file in memory, which makes itself no larger, so that it
// is not the first to be killed, and then takes memory of its own, so that it is the next.
func hog(group *string) error {
	fd, err := unix.MemfdCreate("hog", 0)
	if err != nil {
		return err
	}
	mine, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(*group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for range oomLimit / 2 / len(b) {
		if _, err := unix.Write(fd, b); err != nil {
			return err
		}
	}
	for i := 0; oomKills(*group) == 0; i += os.Getpagesize() {
		if i >= len(mine) {
			return fmt.Errorf("%d MB, and nobody was killed", i>>20)
		}
		mine[i] = 1
	}
	return nil
}

// oomKills returns how many processes of a cgroup the kernel has killed for want of memory.
func oomKills(group string) (n int) {
	for _, name := range []string{"memory.events", "memory.oom_control"} { // of version 2, and 1
		text, _ := os.ReadFile(filepath.Join(group, name))
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "oom_kill %d", &n)
		}
	}
	return n
}
