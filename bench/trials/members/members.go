//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/registry"
)

// service is the name of what has the members.
const service = "it"

// members are those that etcd has. Member n has an address of its own, and the n-th of all.
type members struct {
	etcd *registry.Etcd
	port int
	list []registry.Member
	next int // number of the next address
	rand *rand.Rand
	made atomic.Int64 // changes
}

func newMembers(etcd *registry.Etcd, port int) *members {
	return &members{etcd: etcd, port: port, rand: rand.New(rand.NewPCG(1, 2))}
}

func (m *members) address() string {
	m.next++
	n := m.next
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+n>>16, n>>8&255, n&255, m.port)
}

// fill adds members until there are n.
func (m *members) fill(n int) error {
	var add []registry.Member
	for i := len(m.list); i < n; i++ {
		add = append(add, registry.Member{Name: fmt.Sprintf("m%05d", i), Addr: m.address(), Weight: 1})
	}
	m.list = append(m.list, add...)
	return m.etcd.PutAll(service, add)
}

// change makes so many changes a second, until stop is closed, and returns how many: half of them of a weight, the others
// moves to an address that is new. The number of members stays.
func (m *members) change(perSecond int, stop <-chan struct{}) (n int, err error) {
	if perSecond == 0 {
		<-stop
		return 0, nil
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return n, nil
		case <-tick.C:
		}
		one := &m.list[m.rand.IntN(len(m.list))]
		if n%2 == 0 {
			one.Weight = 1 + one.Weight%4
		} else {
			one.Addr = m.address()
		}
		if err := m.etcd.Put(service, *one); err != nil {
			return n, err
		}
		n++
		m.made.Add(1)
	}
}
