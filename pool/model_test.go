package pool

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// The slow oracle: a set of objects, each with the number of collections that it
// saw in the pool.
type model struct {
	mu   sync.Mutex // Drop may run on another goroutine
	most int
	kept map[*thing]int
	gone map[*thing]bool
	want map[*thing]bool // to be dropped by the operation under way
}

func (m *model) put(x *thing) {
	if m.most > 0 && len(m.kept) >= m.most {
		m.want[x] = true
	} else {
		m.kept[x] = 0
	}
}

func (m *model) collect() {
	for x, age := range m.kept {
		if age == 1 {
			delete(m.kept, x)
			m.want[x] = true
		} else {
			m.kept[x] = 1
		}
	}
}

func (m *model) drain() {
	for x := range m.kept {
		m.want[x] = true
	}
	clear(m.kept)
}

// On one CPU a Pool does exactly what the oracle does, except that Get may return another of its objects.
func TestModel(t *testing.T) {
	withProcs(t, 1)
	manualGC(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	steps := 400
	if raceEnabled || testing.Short() {
		steps /= 4
	}
	const shared = -1 // neither Drop nor Max
	for _, most := range []int{shared, 0, 1, 2, 5, 30, 300} {
		m := &model{most: most, kept: map[*thing]int{}, gone: map[*thing]bool{}, want: map[*thing]bool{}}
		made := 0
		p := Pool[*thing]{
			New: func() *thing { made++; return new(thing) },
			Drop: func(x *thing) {
				m.mu.Lock()
				defer m.mu.Unlock()
				if !m.want[x] {
					t.Errorf("Max %d: dropped an object out of turn", most)
				}
				delete(m.want, x)
				m.gone[x] = true
			},
			Max: most,
		}
		leave := func() {}
		if most == shared {
			p.Drop, p.Max = nil, 0
			leave = func() { // there is no Drop
				for x := range m.want {
					m.gone[x] = true
				}
				clear(m.want)
			}
		}
		var held []*thing
		for step := range steps {
			switch k := rnd.IntN(20); {
			case k < 9:
				for range rnd.IntN(60) {
					before := made
					x := p.Get()
					if _, ok := m.kept[x]; ok == (made > before) || m.gone[x] {
						t.Fatalf("Max %d, step %d: %d kept, made %v, gone %v", most, step, len(m.kept), made > before, m.gone[x])
					}
					if made > before && len(m.kept) > 0 {
						t.Fatalf("Max %d, step %d: made one with %d kept", most, step, len(m.kept))
					}
					delete(m.kept, x)
					held = append(held, x)
				}
			case k < 18:
				for range rnd.IntN(60) {
					if len(held) == 0 {
						break
					}
					i := rnd.IntN(len(held))
					x := held[i]
					held[i] = held[len(held)-1]
					held = held[:len(held)-1]
					m.put(x)
					p.Put(x)
				}
			case k < 19:
				m.collect()
				cycle(t, &p)
				leave()
			default:
				n := len(m.kept)
				m.drain()
				if got := p.Drain(); got != n {
					t.Fatalf("Max %d, step %d: drained %d of %d", most, step, got, n)
				}
				leave()
			}
			s := p.Stats()
			if s.Kept != len(m.kept) || s.News != uint64(made) || s.Drops != uint64(len(m.gone)) || s.Live != made-len(m.gone) {
				t.Fatalf("Max %d, step %d: made %d, kept %d, gone %d, but %+v", most, step, made, len(m.kept), len(m.gone), s)
			}
			if len(m.want) > 0 {
				t.Fatalf("Max %d, step %d: %d objects were not dropped", most, step, len(m.want))
			}
		}
		m.drain()
		p.Drain()
	}
}
