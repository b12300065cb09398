package doctor

import (
	"io/fs"
	"strconv"
	"strings"
)

// read returns the text of a file, trimmed; "" if it cannot be read.
func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// sysctl returns a value of /proc/sys by its dotted name; "" if the kernel does not have it.
func sysctl(root fs.FS, name string) string {
	return read(root, "proc/sys/"+strings.ReplaceAll(name, ".", "/"))
}

// field returns the words that follow name at the start of a line of text.
func field(text, name string) []string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// number parses a count; "unlimited" is the largest one.
func number(s string) (int64, bool) {
	if s == "unlimited" {
		return 1<<63 - 1, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// release parses the numbers at the start of a kernel release: 7.1.4-2-arch is 7, 1, 4. Missing
// numbers are 0.
func release(s string) (v [3]int) {
	for i := range v {
		digits := 0
		for digits < len(s) && digits < 6 && '0' <= s[digits] && s[digits] <= '9' {
			digits++
		}
		v[i], _ = strconv.Atoi(s[:digits])
		if s = s[digits:]; digits == 0 || !strings.HasPrefix(s, ".") {
			break
		}
		s = s[1:]
	}
	return v
}

// before reports whether release v is older than w.
func before(v, w [3]int) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}
