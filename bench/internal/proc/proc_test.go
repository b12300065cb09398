//go:build linux

package proc

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCPUIsStatWithoutRounding compares the clock with fields 14 and 15 of /proc/PID/stat
// (proc_pid_stat(5)), which count in ticks of 10 ms.
func TestCPUIsStatWithoutRounding(t *testing.T) {
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
	}
	pid := os.Getpid()
	before, err := CPU([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	after, err := CPU([]int{pid})
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	utime, _ := strconv.Atoi(f[11])
	stime, _ := strconv.Atoi(f[12])
	stat := time.Duration(utime+stime) * 10 * time.Millisecond
	// Both fields are rounded down.
	if stat < before-20*time.Millisecond || stat > after {
		t.Errorf("stat says %v, the clock %v to %v", stat, before, after)
	}
}

func TestCPUOfNoProcess(t *testing.T) {
	if _, err := CPU([]int{1 << 28}); err == nil {
		t.Error("a process that cannot exist has a CPU clock")
	}
}

func TestTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b [3]byte
	if _, err := out.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	pids := Tree(cmd.Process.Pid)
	for _, pid := range pids {
		p, _ := os.FindProcess(pid)
		p.Kill()
	}
	cmd.Wait()
	if len(pids) != 3 {
		t.Errorf("shell with two children has the tree %v", pids)
	}
}

func TestRSS(t *testing.T) {
	kb, err := RSS([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if kb < 100 || kb > 10<<20 {
		t.Errorf("this process holds %d KB", kb)
	}
}

// TestIdle: idle time does not grow faster than time passes on the CPUs.
func TestIdle(t *testing.T) {
	for _, cpus := range []string{"", "0"} {
		start := time.Now()
		before, err := Idle(cpus)
		if err != nil {
			t.Fatal(err)
		}
		sha256.Sum256(make([]byte, 32<<20)) // something to do, longer than a tick
		after, err := Idle(cpus)
		if err != nil {
			t.Fatal(err)
		}
		// Each of the two fields of a CPU is rounded.
		n := time.Duration(Count(cpus))
		if grew, most := after-before, n*(time.Since(start)+20*time.Millisecond); before <= 0 || grew < 0 || grew > most {
			t.Errorf("CPUs %q: idle for %v, then %v more, want 0 to %v", cpus, before, grew, most)
		}
	}
}

// TestMemfd: a page of a memfd counts once, mapped by nobody.
func TestMemfd(t *testing.T) {
	pids := []int{os.Getpid(), os.Getpid()}
	before, err := MemoryOf(pids[:1])
	if err != nil {
		t.Fatal(err)
	}
	files := Files(os.Getpid())
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if n := Files(os.Getpid()); n != files+1 {
		t.Errorf("%d files, and %d with one more", files, n)
	}
	const size = 1 << 20
	if _, err := unix.Write(fd, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	after, err := MemoryOf(pids)
	if err != nil {
		t.Fatal(err)
	}
	if after.Memfd-before.Memfd != size>>10 {
		t.Errorf("a memfd of %d KB counts %d KB", size>>10, after.Memfd-before.Memfd)
	}
	if m := (Memory{PSS: 100, Shmem: 30, Memfd: 50}); m.Once() != 120 {
		t.Errorf("%+v: %d", m, m.Once())
	}
}
