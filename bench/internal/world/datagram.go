//go:build linux

package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// datagramFlow is a datagram client and its upstream.
type datagramFlow struct {
	id    uint64
	via   *Place
	start time.Time

	mu      sync.Mutex
	at      atomic.Pointer[Endpoint] // the member of a registry that has it
	from    relayPort                // where its datagrams come from
	first   uint64                   // the first one that came from there
	ports   []relayPort              // from, and others
	since   time.Time
	latest  time.Time // when the last datagram was sent that came from there
	proven  int64     // the last kill that the flow has survived
	kill    int64
	mark    uint64 // the last datagram sent before that kill
	sent    uint64
	sentAt  map[uint64]time.Time // when the last datagrams were sent
	arrived map[uint64]bool      // at the upstream, lately

	strangers []stranger // answers to other flows that wait for a verdict: the client's own
}

func (f *datagramFlow) String() string {
	return fmt.Sprintf("datagram flow %d (%s, %v old)", f.id, f.via.Name, time.Since(f.start).Round(time.Millisecond))
}

// unanswered says what became of a flow that has no answer: whether its datagrams have reached an upstream, and from where.
func (f *datagramFlow) unanswered() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("%v: no answer for %v; of its %d datagrams an upstream has got %d of the last 1000, from %v", f, Patience, f.sent, len(f.arrived), f.ports)
}

func (f *datagramFlow) died(number int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kill, f.mark = number, f.sent
}

// arrive is told of a datagram at the upstream. The same flow must come from the same address always:
// another one means that the relay has made a new flow of it.
func (w *World) arrive(f *datagramFlow, number uint64, from relayPort, at *Endpoint) {
	if at != nil && f.at.CompareAndSwap(nil, at) {
		w.took(at, f, f.start)
	}
	if !w.ports.came(from, f.id) {
		w.Tally.Fault(datagramsWrong, "%v: datagram %d comes from %v, which has been another flow's since", f, number, from)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arrived[number] {
		w.Tally.Fault(datagramsDuplicate, "%v: datagram %d came twice", f, number)
	}
	f.arrived[number] = true
	delete(f.arrived, number-min(number, 1000))
	sent := f.sentAt[number]
	if f.from == from {
		f.sentLast(sent)
		if f.kill > 0 && number > f.mark {
			f.proven = f.kill
		}
		return
	}
	f.ports = append(f.ports, from)
	known := f.from != relayPort{}
	if known && number < f.first {
		// It waited at another upstream, since before the flow came from where it comes from now.
		switch {
		case w.Idle > 0 && f.since.Sub(sent) > w.Idle:
			w.Tally.Count(idleDatagram, 1)
		case w.Kills.Between(f.start, time.Time{}, f.proven):
			w.Tally.Count(unsettledDatagram, 1)
		default:
			w.Tally.Fault(datagramFlowsLost, "%v: datagram %d comes from %v, and %d came from %v before, not %v after %d was sent", f, number, from, f.first, f.from, w.Idle, number)
		}
		return
	}
	switch {
	case !known:
	case w.Idle > 0 && time.Since(f.latest) > w.Idle:
		// Nobody had CPU time: the relay may have seen nothing of the flow for so long that it had to end it.
		w.Tally.Count(idleDatagram, 1)
	case w.Kills.Between(f.start, f.since.Add(w.KeepAfter+w.Slack), f.proven):
		w.Tally.Count(unsettledDatagram, 1)
	default:
		w.Tally.Fault(datagramFlowsLost, "%v: after %v its datagrams come from %v, before from %v; survived kill %d of %d", f, time.Since(f.since).Round(time.Millisecond), from, f.from, f.proven, w.Kills.number())
	}
	f.from, f.first, f.since = from, number, time.Now()
	f.sentLast(sent)
}

// sentLast notes when a datagram was sent that came from where the flow comes from.
func (f *datagramFlow) sentLast(at time.Time) {
	if at.After(f.latest) {
		f.latest = at
	}
}

// ServeDatagrams answers every datagram with one of the same length, at an upstream that may be a member of a registry.
func (w *World) ServeDatagrams(conn net.PacketConn, at *Endpoint) {
	w.closers = append(w.closers, conn)
	w.upstreams.Go(func() {
		b, own := make([]byte, 2048), conn.LocalAddr().String()
		for {
			n, from, err := conn.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // an ICMP error
			}
			id, number, d, err := pattern.ReadDatagram(b[:n])
			if err != nil || d != up {
				w.Tally.Fault(datagramsWrong, "an upstream got from %v: %v, direction %v", from, err, d)
				continue
			}
			v, ok := w.datagrams.Load(id)
			if !ok {
				continue // its client has gone
			}
			w.arrive(v.(*datagramFlow), number, relayPort{own, from.String()}, at)
			conn.WriteTo(pattern.MakeDatagram(b[:n], id, number, down), from)
		}
	})
}

func (w *World) makeDatagramFlow(via *Place) *datagramFlow {
	f := &datagramFlow{id: w.nextFlow.Add(1), via: via, start: time.Now(), sentAt: make(map[uint64]time.Time), arrived: make(map[uint64]bool)}
	w.datagrams.Store(f.id, f)
	return f
}

// dialDatagrams returns the socket of a client.
func (w *World) dialDatagrams(f *datagramFlow) (net.Conn, error) {
	if f.via.Network == "udp" {
		var dialer net.Dialer
		if f.via.Own {
			dialer.LocalAddr = &net.UDPAddr{IP: net.IPv4(127, byte(128+f.id>>16), byte(f.id>>8), byte(f.id))}
		}
		conn, err := dialer.Dial(f.via.Network, f.via.Addr)
		if err == nil {
			w.locals.Store(f.id, conn.LocalAddr().String())
		}
		return conn, err
	}
	if f.via.Network == "unixgram" {
		own := &net.UnixAddr{Net: "unixgram", Name: filepath.Join(w.dir, fmt.Sprint("c", f.id))}
		return net.DialUnix("unixgram", own, &net.UnixAddr{Net: "unixgram", Name: f.via.Addr})
	}
	return net.Dial(f.via.Network, f.via.Addr)
}

// had reports whether a client had this address before: an answer that comes late goes to its heir.
func (w *World) had(id uint64, addr string) bool {
	local, ok := w.locals.Load(id)
	return ok && local == addr
}

// Idle is for how long a datagram flow may carry nothing: the daemon's configuration says so.
const Idle = 8 * time.Second

// send sends one datagram. An upstream may answer it even before send returns.
func (w *World) send(f *datagramFlow, conn net.Conn, b []byte) error {
	f.mu.Lock()
	f.sent++
	number := f.sent
	f.sentAt[number] = time.Now()
	delete(f.sentAt, number-min(number, 1000))
	f.mu.Unlock()
	conn.SetWriteDeadline(time.Now().Add(Patience))
	_, err := conn.Write(pattern.MakeDatagram(b, f.id, number, up))
	return err
}

// receive waits for a datagram and checks that it is this client's, and new.
func (w *World) receive(f *datagramFlow, conn net.Conn, b []byte, seen map[uint64]bool, by time.Duration) (number uint64, ok bool) {
	conn.SetReadDeadline(time.Now().Add(by))
	n, err := conn.Read(b)
	if err != nil {
		return 0, false
	}
	want := down
	if f.via.Echo {
		want = up
	}
	id, number, d, err := pattern.ReadDatagram(b[:n])
	switch {
	case err == nil && d == want && id != f.id && w.had(id, conn.LocalAddr().String()):
		w.Tally.Count(datagramsLate, 1)
		return 0, false
	case err == nil && d == want && id != f.id && !f.via.Echo:
		f.strangers = append(f.strangers, stranger{id, number, f.sent})
		return 0, false
	case err != nil || d != want || id != f.id:
		w.Tally.Fault(datagramsWrong, "%v got datagram %d of flow %d, %v: %v", f, number, id, d, err)
		return 0, false
	case seen[number]:
		w.Tally.Fault(datagramsDuplicate, "%v: the answer %d came twice", f, number)
		return 0, false
	}
	seen[number] = true
	delete(seen, number-min(number, 1000))
	if f.via.Echo {
		f.mu.Lock()
		if f.since.IsZero() {
			f.since = time.Now()
		}
		f.mu.Unlock()
	}
	w.Tally.Count(datagramsAnswered, 1)
	w.judge(f, number)
	return number, true
}

// talkDatagrams plays a datagram client that sends bursts and waits for the answers, until the time is
// over. Lost datagrams are counted; that nothing more is answered is a fault. The longer nothing is answered, the less it sends: an
// upstream that has fallen behind would have ever more to do otherwise, and full buffers lose what is new.
func (w *World) talkDatagrams(via *Place, burst int, pauses [2]time.Duration, life time.Duration) {
	f := w.makeDatagramFlow(via)
	defer w.datagrams.Delete(f.id)
	defer w.countOutlived(f)
	defer w.forgive(f)
	conn, err := w.dialDatagrams(f)
	if err != nil {
		w.Tally.Fault(clientsRefused, "%v: %v", f, err)
		return
	}
	defer conn.Close()
	if via.Network == "unixgram" {
		defer os.Remove(conn.LocalAddr().String())
	}
	r := w.Random(f.id, 0)
	b, seen := make([]byte, 2048), make(map[uint64]bool)
	stop := f.start.Add(life)
	last := time.Now()
	waits := pinger{begun: f.start}
	for !w.stopping.Load() && (life == 0 || time.Now().Before(stop)) {
		w.allow(2 * burst * 1200)
		first := f.sent + 1
		sent := time.Now()
		for range burst {
			if err := w.send(f, conn, b[:datagramSize(r, burst)]); err != nil {
				w.Sleep(ms) // as if it were lost on the way
			}
		}
		left := burst
		by := min(max(300*ms, time.Since(last)/4), Patience/10)
		for left > 0 {
			number, ok := w.receive(f, conn, b, seen, by)
			if !ok {
				break
			}
			if number >= first {
				left--
				waits.answered(w, sent)
			}
			last = time.Now()
		}
		w.Tally.Count(datagramsLost, int64(left))
		if time.Since(last) > Patience {
			w.Tally.Fault(datagramFlowsLost, "a client: %s", f.unanswered())
			return
		}
		w.Sleep(pauseBetween(r, pauses))
	}
}

// countOutlived counts a flow that went on although its member was removed, drained or moved.
func (w *World) countOutlived(f *datagramFlow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.Load() != nil && f.proven > 0 {
		w.Tally.Count(datagramsOutlived, 1)
	}
}

// datagramSize returns the size of the next datagram: any in a conversation, and full ones in a
// transfer.
func datagramSize(r *rand.Rand, burst int) int {
	if burst > 8 {
		return 1200
	}
	return between(r, pattern.DatagramHeader, 1400)
}

// newDatagramClient sends one datagram, again until it is answered, less and less often: an upstream that has fallen
// behind would have ever more to do otherwise.
func (w *World) newDatagramClient(via *Place) {
	f := w.makeDatagramFlow(via)
	defer w.datagrams.Delete(f.id)
	defer w.forgive(f)
	conn, err := w.dialDatagrams(f)
	if err != nil {
		w.Tally.Fault(clientsRefused, "%v: %v", f, err)
		return
	}
	defer conn.Close()
	b, seen := make([]byte, 2048), make(map[uint64]bool)
	end, by := time.Now().Add(Patience), 300*ms
	for ; time.Now().Before(end); by = min(2*by, Patience/10) {
		w.send(f, conn, b[:64])
		if _, ok := w.receive(f, conn, b, seen, by); ok {
			w.Tally.Count(newDatagramClients, 1)
			return
		}
		w.Tally.Count(datagramsLost, 1)
	}
	w.Tally.Fault(clientsRefused, "a new client: %s", f.unanswered())
}

// LoadDatagrams starts n clients of each kind at each datagram listener.
func (w *World) LoadDatagrams(n int) {
	for _, p := range w.Places {
		if p.Network != "udp" && p.Network != "unixgram" {
			continue
		}
		for range n {
			w.clients.Go(func() { // requests and replies, all the time
				w.talkDatagrams(p, 1, [2]time.Duration{0, 20 * ms}, 0)
			})
			w.clients.Go(func() { // some, and then a new client
				for !w.stopping.Load() {
					w.talkDatagrams(p, 4, [2]time.Duration{0, 100 * ms}, 12*time.Second)
				}
			})
		}
		if p.Network == "udp" {
			w.clients.Go(func() { // bulk, as a QUIC transfer does
				w.talkDatagrams(p, 48, [2]time.Duration{0, 5 * ms}, 0)
			})
		}
	}
}
