//go:build linux

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Memory is the memory of some processes in KB.
type Memory struct {
	RSS       int64 // what they share counts for each
	PSS       int64 // what they share counts once, but what others share with them only in part
	Anonymous int64 // the part of RSS that is of no file: heap, stacks, tables
	Shmem     int64 // the part of PSS that is shared memory
	Memfd     int64 // pages of the memfds that they have open, whether any process maps them or not
}

// Once returns the memory that would be free without the processes, without counting anything
// twice: a memfd counts with all of its pages, once, and not by who maps them. The kernel's memory
// (sockets, files) is not in it.
func (m Memory) Once() int64 { return m.PSS + max(0, m.Memfd-m.Shmem) }

// MemoryOf reads /proc/PID/smaps_rollup and the sizes of memfds.
func MemoryOf(pids []int) (m Memory, err error) {
	seen := map[uint64]bool{}
	for _, pid := range pids {
		rollup := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
		for name, sum := range map[string]*int64{"Rss:": &m.RSS, "Pss:": &m.PSS, "Anonymous:": &m.Anonymous, "Pss_Shmem:": &m.Shmem} {
			kb, err := field(rollup, name)
			if err != nil {
				return m, err
			}
			*sum += kb
		}
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		files, err := os.ReadDir(dir)
		if err != nil {
			return m, err
		}
		for _, f := range files {
			path := filepath.Join(dir, f.Name())
			if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:") {
				continue
			}
			var st syscall.Stat_t
			if err := syscall.Stat(path, &st); err != nil || seen[st.Ino] {
				continue // it may have been closed meanwhile
			}
			seen[st.Ino] = true // all memfds are on one file system
			m.Memfd += st.Blocks / 2
		}
	}
	return m, nil
}

// OwnMemory returns the resident memory of a process in KB, without that of files, such as its binary: the kernel takes
// their pages from a process that does not use them for a while, and gives them back later (proc_pid_status(5), RssAnon and
// RssShmem).
func OwnMemory(pid int) (kb float64, err error) {
	status := fmt.Sprintf("/proc/%d/status", pid)
	anonymous, err := field(status, "RssAnon:")
	if err != nil {
		return 0, err
	}
	shmem, err := field(status, "RssShmem:")
	return float64(anonymous + shmem), err
}

// Files returns how many files processes have open; 0 for one of which that cannot be read.
func Files(pids ...int) (n int) {
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		// From Linux 6.2 on the size of the folder is the number (fs/proc/fd.c, proc_readfd_count).
		if info, err := os.Stat(dir); err == nil && info.Size() > 0 {
			n += int(info.Size())
			continue
		}
		files, _ := os.ReadDir(dir)
		n += len(files)
	}
	return n
}
