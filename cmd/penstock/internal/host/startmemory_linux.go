package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// LeaveStart gives back the memory that only the start needed: garbage, and pages of the program's file.
func LeaveStart() {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	for _, m := range unchangedMappings(f, program) {
		// The pages stay in the kernel's cache and are mapped again, 16 at a time, as they are used. madvise(2).
		unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mapping is a part of the address space.
type mapping struct{ start, end uintptr }

// unchangedMappings returns the mappings of a file that cannot be written, and have no page that differs from the file, such as one with
// relocations. text is /proc/PID/smaps: proc_pid_smaps(5).
func unchangedMappings(text io.Reader, file string) (list []mapping) {
	var m mapping
	of := false
	for lines := bufio.NewScanner(text); lines.Scan(); {
		line := lines.Text()
		switch field, value, _ := strings.Cut(line, ":"); {
		case strings.ContainsRune(field, '-'): // START-END PERMISSIONS ...
			var permissions string
			of = strings.HasSuffix(line, " "+file)
			if of {
				n, _ := fmt.Sscanf(line, "%x-%x %s ", &m.start, &m.end, &permissions)
				of = n == 3 && strings.HasPrefix(permissions, "r-")
			}
		case of && field == "Anonymous" && strings.TrimSpace(value) == "0 kB":
			list = append(list, m)
		}
	}
	return list
}
