package testnet

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// openFds returns what each open descriptor is, as proc_pid_fd(5) has it.
func openFds() map[int]string {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	m := make(map[int]string)
	for _, name := range names {
		n, _ := strconv.Atoi(name)
		if n == int(dir.Fd()) {
			continue
		}
		what, err := os.Readlink("/proc/self/fd/" + name)
		if err != nil {
			continue // closed since the list was read
		}
		m[n] = what
	}
	return m
}

// describeSockets adds to descriptors that are sockets what the kernel's tables say of them. These can be long, with connections that have
// ended in them.
func describeSockets(fds map[int]string) {
	table := socketTable()
	for fd, what := range fds {
		if inode, ok := strings.CutPrefix(what, "socket:["); ok {
			fds[fd] += " " + table[strings.TrimSuffix(inode, "]")]
		}
	}
}

// socketTable describes the machine's sockets by inode (proc_net_tcp in the
// kernel's documentation; unix: proc_pid_net(5)).
func socketTable() map[string]string {
	m := make(map[string]string)
	for _, proto := range []string{"tcp", "tcp6", "udp", "udp6"} {
		for _, f := range table("/proc/self/net/" + proto) {
			if len(f) > 9 {
				m[f[9]] = fmt.Sprintf("%s %s -> %s", proto, address(f[1]), address(f[2]))
			}
		}
	}
	for _, f := range table("/proc/self/net/unix") {
		if len(f) > 6 {
			m[f[6]] = "unix " + strings.Join(f[7:], " ")
		}
	}
	return m
}

// table returns the fields of each line of a file except for the first.
func table(path string) (rows [][]string) {
	text, _ := os.ReadFile(path)
	for i, line := range strings.Split(string(text), "\n") {
		if i > 0 {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

// address parses "0100007F:1F90": the address as 32-bit words in the machine's byte order, assumed
// to be little-endian, and the port.
func address(s string) string {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil || len(b)%4 != 0 {
		return s
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip, uint16(p)).String()
}
