package relay

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/hold"
)

// scriptServer plays a script on each connection; reports are in the channel.
func scriptServer(t *testing.T, network string, s testnet.Script) (net.Addr, chan testnet.Report) {
	t.Helper()
	l := testnet.Listen(t, network)
	reports := make(chan testnet.Report, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { reports <- testnet.Play(c, s) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr(), reports
}

func urlOf(a net.Addr) string {
	if u, ok := a.(*net.UnixAddr); ok {
		return Addr{Network: Unix, Path: u.Name}.String()
	}
	return "tcp://" + a.String()
}

// settled waits until n flows are held.
func (k *keptTable) settled(n int) {
	k.t.Helper()
	k.expect(holdFlow, n)
}

// journey is a flow, or several, whose processes are killed until it is over.
type journey struct {
	k       *keptTable
	o       keptOrder
	proc    *keptProcess
	kills   int
	total   hold.Restored
	records []keptRecord
	untold  int // flows whose process was killed in Hooks.Done
}

// newJourney starts the first process. The upstream plays a script, and reports.
func newJourney(t *testing.T, client, upstream string, s testnet.Script, o keptOrder) (*journey, chan testnet.Report) {
	t.Helper()
	j := &journey{k: newKeptTable(t), o: o}
	var reports chan testnet.Report
	if o.Upstream == "" {
		var at net.Addr
		at, reports = scriptServer(t, upstream, s)
		j.o.Upstream = urlOf(at)
	}
	j.o.Loops, j.o.Listen = 1, []string{keptPlace(t, client)}
	j.proc = j.k.start(j.o)
	j.o.Listen = j.proc.urls()
	return j, reports
}

// dial makes a flow, which is kept when dial returns.
func (j *journey) dial(t *testing.T) net.Conn {
	t.Helper()
	c := testnet.Dial(t, toNet(j.proc.addrs[0]))
	j.k.settled(1)
	return c
}

// next kills the process and starts the next one. No flow may be lost.
func (j *journey) next(t *testing.T) {
	t.Helper()
	j.proc.kill()
	j.collect()
	j.kills++
	j.proc = j.k.start(j.o)
	r := j.proc.Restored
	j.total.Add(&r)
	if r.TotalLost() > 0 {
		t.Fatalf("after %d kills: %+v", j.kills, r)
	}
	if r.Flows+r.Ended == 0 && len(j.records) == 0 {
		j.untold = 1
	}
}

// collect takes the records that have come.
func (j *journey) collect() {
	for {
		select {
		case r := <-j.proc.records:
			j.records = append(j.records, r)
		default:
			return
		}
	}
}

// run kills processes until n reports have come from the channels.
func (j *journey) run(t *testing.T, n int, pause time.Duration, all ...chan testnet.Report) (reports []testnet.Report) {
	t.Helper()
	merged := make(chan testnet.Report, n)
	for _, c := range all {
		go func() {
			for r := range c {
				merged <- r
			}
		}()
		defer close(c)
	}
	for len(reports) < n {
		select {
		case r := <-merged:
			reports = append(reports, r)
		case <-time.After(time.Duration(1 + rand.Int64N(int64(pause)))):
			j.next(t)
		}
	}
	return reports
}

// done waits until nothing is held any more, and returns all records.
func (j *journey) done(t *testing.T, n int) []keptRecord {
	t.Helper()
	j.k.settled(0)
	for len(j.records) < n-j.untold {
		select {
		case r := <-j.proc.records:
			j.records = append(j.records, r)
		case <-time.After(patience):
			t.Fatalf("%d records, want %d", len(j.records), n)
		}
	}
	if len(j.records) == 0 {
		t.Skip("the process was killed in Hooks.Done")
	}
	if len(j.records) != n {
		t.Errorf("%d records, want %d: %+v", len(j.records), n, j.records)
	}
	t.Logf("%d kills, %d found bytes in the process, %d in all", j.kills, j.total.Holding, j.total.Bytes)
	return j.records
}

// A stream that is carried by a sequence of processes, each of which is killed at a random moment,
// arrives as it was sent.
func TestStreamsOutliveProcesses(t *testing.T) {
	testnet.AlsoWithoutRace(t)
	const mib = 1 << 20
	for _, c := range []struct {
		name     string
		up, down testnet.Script
		order    keptOrder
	}{
		{name: "bulk", up: testnet.Script{Send: 32 * mib, Recv: 32 * mib}, down: testnet.Script{Send: 32 * mib, Recv: 32 * mib}},
		{name: "small", up: testnet.Script{Send: 4 * mib, SendChunk: 700, Recv: 4 * mib}, down: testnet.Script{Send: 4 * mib, SendChunk: 300, Recv: 4 * mib}},
		{name: "up", up: testnet.Script{Send: 32 * mib}, down: testnet.Script{Recv: 32 * mib}},
		{name: "down", up: testnet.Script{Recv: 32 * mib}, down: testnet.Script{Send: 32 * mib}},
		{name: "slow reader", up: testnet.Script{Recv: 8 * mib, RecvChunk: 500}, down: testnet.Script{Send: 8 * mib}},
		{name: "slow readers", up: testnet.Script{Send: 4 * mib, Recv: 4 * mib, RecvChunk: 300}, down: testnet.Script{Send: 4 * mib, Recv: 4 * mib, RecvChunk: 1000}},
		{name: "paced", up: testnet.Script{Send: 3 * mib}, down: testnet.Script{Recv: 3 * mib}, order: keptOrder{Bandwidth: 10 * mib}},
		{name: "copied", up: testnet.Script{Send: 16 * mib, Recv: 16 * mib}, down: testnet.Script{Send: 16 * mib, Recv: 16 * mib}, order: keptOrder{NoPipes: true}},
	} {
		for _, p := range pairs {
			t.Run(c.name+"/"+p[0]+"-"+p[1], func(t *testing.T) {
				up, down := c.up, c.down
				up.SendSeed, up.RecvSeed, down.SendSeed, down.RecvSeed = 1, 2, 2, 1
				j, reports := newJourney(t, p[0], p[1], down, c.order)
				own := make(chan testnet.Report, 1)
				conn := j.dial(t)
				go func() { own <- testnet.Play(conn, up) }()
				for _, r := range j.run(t, 2, 40*time.Millisecond, reports, own) {
					if r.Err != "" {
						t.Errorf("%+v", r)
					}
				}
				rec := j.done(t, 1)[0]
				if rec.Cause != CauseEnd || rec.Up.Written != up.Send || rec.Up.Read != up.Send || rec.Down.Written != down.Send || rec.Down.Read != down.Send {
					t.Errorf("%+v", rec)
				}
			})
		}
	}
}

// The same of an echo.
func TestEchoOutlivesProcesses(t *testing.T) {
	const size = 16 << 20
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			j, _ := newJourney(t, network, "", testnet.Script{}, keptOrder{Upstream: "echo:"})
			own := make(chan testnet.Report, 1)
			conn := j.dial(t)
			go func() { own <- testnet.Play(conn, testnet.Script{Send: size, SendSeed: 3, Recv: size, RecvSeed: 3}) }()
			for _, r := range j.run(t, 1, 20*time.Millisecond, own) {
				if r.Err != "" {
					t.Errorf("%+v", r)
				}
			}
			if rec := j.done(t, 1)[0]; rec.Cause != CauseEnd || rec.Up.Read != size || rec.Down.Written != size {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// What the relay itself sends first is sent once.
func TestPrefaceOutlivesProcesses(t *testing.T) {
	const own, size = 1000, 8 << 20
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			k := newKeptTable(t)
			s := newServer(t, p[1])
			o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, p[0])}, Upstream: s.addr.String(), Preface: own}
			j := &journey{k: k, o: o, proc: k.start(o)}
			j.o.Listen = j.proc.urls()
			reports := make(chan testnet.Report, 1)
			a := j.dial(t)
			go func() { reports <- testnet.Play(a, testnet.Script{Send: size, SendSeed: 5}) }()
			b := s.accept(t)
			upstream := make(chan testnet.Report, 1)
			go func() {
				preface := make([]byte, own)
				if _, err := io.ReadFull(b, preface); err != nil || testnet.NewPattern(9).Check(0, preface) != nil {
					t.Errorf("another preface, %v", err)
				}
				upstream <- testnet.Play(b, testnet.Script{Recv: size, RecvSeed: 5})
			}()
			for _, r := range j.run(t, 2, 20*time.Millisecond, reports, upstream) {
				if r.Err != "" {
					t.Errorf("%+v", r)
				}
			}
			if rec := j.done(t, 1)[0]; rec.Cause != CauseEnd || rec.Up.Read != size || rec.Up.Written != size {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// What the relay itself tells the client before it relays is told once.
func TestReplyOutlivesProcesses(t *testing.T) {
	const own, size = 1000, 8 << 20
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			j, reports := newJourney(t, p[0], p[1], testnet.Script{Send: size, SendSeed: 5}, keptOrder{Welcome: own})
			a := j.dial(t)
			client := make(chan testnet.Report, 1)
			go func() {
				welcome := make([]byte, own)
				if _, err := io.ReadFull(a, welcome); err != nil || testnet.NewPattern(9).Check(0, welcome) != nil {
					t.Errorf("another reply, %v", err)
				}
				client <- testnet.Play(a, testnet.Script{Recv: size, RecvSeed: 5})
			}()
			for _, r := range j.run(t, 2, 20*time.Millisecond, reports, client) {
				if r.Err != "" {
					t.Errorf("%+v", r)
				}
			}
			if rec := j.done(t, 1)[0]; rec.Cause != CauseEnd || rec.Down.Read != size || rec.Down.Written != size {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A pair with a name goes on, too.
func TestPairOutlivesProcesses(t *testing.T) {
	const size = 8 << 20
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			k := newKeptTable(t)
			sa, sb := newServer(t, p[0]), newServer(t, p[1])
			o := keptOrder{Loops: 1, Pair: sa.addr.String(), Upstream: sb.addr.String()}
			j := &journey{k: k, o: o, proc: k.start(o)}
			a, b := sa.accept(t), sb.accept(t)
			k.settled(1)
			ra, rb := make(chan testnet.Report, 1), make(chan testnet.Report, 1)
			go func() { ra <- testnet.Play(a, testnet.Script{Send: size, SendSeed: 1, Recv: size, RecvSeed: 2}) }()
			go func() { rb <- testnet.Play(b, testnet.Script{Send: size, SendSeed: 2, Recv: size, RecvSeed: 1}) }()
			for _, r := range j.run(t, 2, 20*time.Millisecond, ra, rb) {
				if r.Err != "" {
					t.Errorf("%+v", r)
				}
			}
			if rec := j.done(t, 1)[0]; rec.Cause != CauseEnd || rec.Up.Read != size || rec.Down.Read != size || j.total.Flows > 0 && rec.Value != "value'" {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// Idle flows go on, in whatever direction they are half-closed, and end as they would have.
func TestHalfClosedOutlivesProcess(t *testing.T) {
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			s := newServer(t, p[1])
			j, _ := newJourney(t, p[0], p[1], testnet.Script{}, keptOrder{Upstream: s.addr.String()})
			for i, first := range []int{0, 1} {
				a := j.dial(t)
				b := s.accept(t)
				ends := []net.Conn{a, b}
				from, to := ends[first], ends[1-first]
				say(t, a, b, "up")
				say(t, b, a, "down")
				j.k.settled(1)
				j.next(t)
				say(t, a, b, "up again")
				closeWrite(t, from)
				expectEOF(t, to)
				j.next(t)
				say(t, to, from, "one direction")
				j.next(t)
				say(t, to, from, "is left")
				to.Close()
				expectEOF(t, from)
				if rec := j.done(t, i+1)[i]; rec.Cause != CauseEnd || rec.Value != rec.Peer+"'" {
					t.Errorf("%+v", rec)
				}
			}
		})
	}
}

// A reset is never an end, whenever the process is killed.
func TestResetOutlivesProcess(t *testing.T) {
	s := newServer(t, "tcp4")
	j, _ := newJourney(t, "tcp4", "tcp4", testnet.Script{}, keptOrder{Upstream: s.addr.String()})
	for i := range 24 {
		a := j.dial(t)
		b := s.accept(t)
		say(t, a, b, "up")
		say(t, b, a, "down")
		j.k.settled(1)
		from, to := a, b
		if i&1 == 1 {
			from, to = b, a
		}
		if i&2 == 2 {
			closeWrite(t, to)
			expectEOF(t, from)
		}
		if i&4 == 4 {
			j.proc.stop()
		}
		from.(*net.TCPConn).SetLinger(0)
		from.Close()
		if i&8 == 8 {
			for range rand.IntN(3000) { // some hundred microseconds at most
				runtime.Gosched()
			}
		}
		j.next(t)
		to.SetReadDeadline(time.Now().Add(patience))
		if n, err := to.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%d: read %d, %v", i, n, err)
		}
		to.Close()
		j.k.settled(0)
	}
	j.proc.kill()
	j.collect()
	ids := make(map[uint64]bool)
	for _, rec := range j.records { // a process that was killed in Hooks.Done has not told of its flow
		if rec.Cause != CauseClientReset && rec.Cause != CauseUpstreamReset || ids[rec.ID] {
			t.Errorf("%+v", rec)
		}
		ids[rec.ID] = true
	}
	t.Logf("%d records of 24 flows", len(ids))
}

func expectEOF(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d, %v, want the end", n, err)
	}
	c.SetReadDeadline(time.Time{})
}
