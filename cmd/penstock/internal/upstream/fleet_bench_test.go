package upstream

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A fleet is a source of many members, some of which change from answer to answer.
type fleet struct {
	r    *rand.Rand
	list []Target
	next int
}

func newFleet(n int, seed uint64) *fleet {
	f := &fleet{r: rand.New(rand.NewPCG(seed, 1)), next: n}
	for i := range n {
		f.list = append(f.list, foundAt(i))
	}
	return f
}

// change returns the next answer: half of the changes replace members, and the other half change
// weights.
func (f *fleet) change(n int) []Target {
	f.list = slices.Clone(f.list)
	for i := range n {
		at := f.r.IntN(len(f.list))
		if i%2 == 0 {
			f.list = append(slices.Delete(f.list, at, at+1), foundAt(f.next))
			f.next++
		} else {
			f.list[at].Weight = 1 + f.r.IntN(4)
		}
	}
	return f.list
}

// BenchmarkChange measures one answer of a source with 10 changes. At 10 answers a second, these are
// 100 changes a second.
func BenchmarkChange(b *testing.B) {
	for _, members := range []int{100, 1000, 10000} {
		for _, balance := range balancerNames() {
			b.Run(fmt.Sprintf("members=%d/balance=%s", members, balance), func(b *testing.B) {
				f := newFleet(members, 1)
				_, _, tell := startSource(b, &spec.Group{Balance: balance}, Options{})
				tell(f.list, nil)
				answers := make([][]Target, min(b.N, 200))
				for i := range answers {
					answers[i] = f.change(10)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					tell(answers[i%len(answers)], nil)
				}
			})
		}
	}
}

// BenchmarkFleet measures tenths of a second, each with 10 changes in a group at once: how much of a CPU that
// takes in all, with everything that follows (tables, events, collecting garbage), and what a Pick on
// a loop costs meanwhile, beside what it costs while nothing changes. The CPU time is that of the
// process without the picks: run it with the axis picks=0 for that.
func BenchmarkFleet(b *testing.B) {
	for _, balance := range balancerNames() {
		for _, changes := range []int{0, 10} {
			for _, picks := range []int{0, 1000} { // per millisecond
				b.Run(fmt.Sprintf("members=10000/balance=%s/changes=%d/picks=%d", balance, 10*changes, picks), func(b *testing.B) {
					f := newFleet(10000, 1)
					_, g, tell := startSource(b, &spec.Group{Balance: balance}, Options{MemberChanged: func(MemberEvent) {}, MemberRemoved: func(*Member) {}})
					answers := [][]Target{f.list}
					for range 7 {
						answers = append(answers, f.change(changes))
					}
					answers = append(answers, answers[6], answers[5], answers[4], answers[3], answers[2], answers[1]) // and back
					tell(f.list, nil)
					runtime.GC()
					before, picked, took, at := cpuSeconds(), 0, time.Duration(0), 0
					tenth := time.NewTicker(100 * time.Millisecond)
					defer tenth.Stop()
					var telling sync.WaitGroup
					defer telling.Wait() // nobody listens once the set is closed
					b.ResetTimer()
					for range b.N {
						if changes > 0 {
							at++
							answer := slices.Clone(answers[at%len(answers)])
							telling.Go(func() { tell(answer, nil) })
						}
						pace := time.NewTicker(time.Millisecond)
						for i, going := 0, picks > 0; going; i++ {
							start := time.Now()
							for j := range picks {
								var l Lease
								g.Pick(&l, Client{Addr: clients(i*picks + j), Local: nobody})
								l.Release()
							}
							took += time.Since(start)
							picked += picks
							select {
							case <-tenth.C:
								going = false
							case <-pace.C:
							}
						}
						if pace.Stop(); picks == 0 {
							<-tenth.C
						}
					}
					b.StopTimer()
					b.ReportMetric(100*(cpuSeconds()-before)/b.Elapsed().Seconds(), "%CPU")
					if picked > 0 {
						b.ReportMetric(float64(took)/float64(picked), "ns/pick")
					}
				})
			}
		}
	}
}

// cpuSeconds returns how long the threads of this process have run, on Linux.
func cpuSeconds() float64 {
	sum := 0.0
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		var ns float64
		fmt.Sscan(string(text), &ns)
		sum += ns / 1e9
	}
	return sum
}

// BenchmarkMemory measures the heap that a member takes, in a group and in its tables.
func BenchmarkMemory(b *testing.B) {
	for _, balance := range balancerNames() {
		b.Run("members=10000/balance="+balance, func(b *testing.B) {
			for range b.N {
				heap := func() uint64 {
					runtime.GC()
					runtime.GC()
					list := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
					metrics.Read(list)
					return list[0].Value.Uint64()
				}
				f := newFleet(10000, 1)
				before := heap()
				_, _, tell := startSource(b, &spec.Group{Balance: balance}, Options{})
				tell(f.list, nil)
				b.ReportMetric(float64(heap()-before)/10000, "B/member")
				runtime.KeepAlive(f)
			}
		})
	}
}
