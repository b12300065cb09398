// Package testport is for tests and benchmarks only: it reserves ports. A program that listens at port 0 and
// asks for its address needs none of this. A port is needed before somebody listens when its number goes into
// a configuration, when a server is to come back at the same address, or when nobody must listen at an address.
//
// To listen at port 0, close the listener and use its port is a race: the port is from the range of outgoing
// connections, so the next connection or socket of any process may get it.
package testport

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// Reserved ports are from this range. It lies below the ports that systems give to outgoing connections and
// to sockets that ask for port 0: 32768 and above on Linux, 49152 and above elsewhere.
const first, last = 10000, 19999

// tries bounds the search. One in a hundred ports or so is taken even if all packages are tested at once.
const tries = 1000

// Reserve returns a port that no TCP or UDP socket of any address had when that was looked up last, a few seconds ago at most. Until release is called,
// no other call of Reserve returns it, in any process of this network namespace (Linux only; elsewhere, other
// processes may). The reservation ends with the process.
//
// Reserve opens one descriptor, which release closes. It never opens a socket at the port itself, not even to see whether it
// is free: a process that another goroutine is just starting would have a copy of that socket between fork and exec, and the
// port would be in use for as long.
func Reserve() (port string, release func(), err error) {
	low, high := outgoing()
	all := low <= first && last <= high // then there is no better port
	for range tries {
		n := first + rand.N(last-first+1)
		if low <= n && n <= high && !all {
			continue
		}
		release, err = claim(n)
		if err != nil {
			continue
		}
		if !inUse(n) {
			return strconv.Itoa(n), release, nil
		}
		release()
		err = fmt.Errorf("port %d is in use", n)
	}
	return "", nil, fmt.Errorf("testport: no port between %d and %d can be reserved: %w", first, last, err)
}
