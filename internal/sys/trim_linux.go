package sys

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// TrimPrograms gives back the pages of the program's own file, and of its libraries, that this process has
// mapped: they are in the page cache, and are mapped again when they are used. The kernel maps the pages
// around each one that is touched, so that a process that runs little of a large program has much of it
// mapped. What is writable, or was and has pages of its own (relocations), is left alone. TrimPrograms
// returns how many bytes were mapped. madvise(2), MADV_DONTNEED; proc_pid_smaps(5).
func TrimPrograms() (bytes int64) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0
	}
	defer f.Close()
	var m mapping
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Bytes()
		if len(line) == 0 || line[0] < 'A' || line[0] > 'Z' {
			// 00400000-00452000 r-xp 00000000 08:02 173521    /usr/bin/penstock
			m = parseMapping(strings.Fields(string(line)))
			continue
		}
		if m.size == 0 {
			continue
		}
		name, value, _ := strings.Cut(string(line), ":")
		switch name {
		case "Rss":
			m.resident = kilobytes(value)
		case "Anonymous", "Swap":
			m.own = m.own || kilobytes(value) != 0
		case "VmFlags": // the last line of each
			if !m.own {
				if _, _, e := syscall.RawSyscall(unix.SYS_MADVISE, m.at, m.size, unix.MADV_DONTNEED); e == 0 {
					bytes += m.resident
				}
			}
			m = mapping{}
		}
	}
	return bytes
}

// kilobytes reads "     140 kB".
func kilobytes(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(s, " kB")), 10, 64)
	return n << 10
}

// mapping is a mapping of a file that is not writable; size is 0 if it is another one.
type mapping struct {
	at, size uintptr
	resident int64
	own      bool // it has pages that are not the file's
}

func parseMapping(fields []string) (m mapping) {
	if len(fields) < 6 || fields[1] != "r-xp" && fields[1] != "r--p" || fields[4] == "0" {
		return m
	}
	from, to, _ := strings.Cut(fields[0], "-")
	a, err1 := strconv.ParseUint(from, 16, 64)
	b, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || b <= a {
		return m
	}
	m.at, m.size = uintptr(a), uintptr(b-a)
	return m
}
