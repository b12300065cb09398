package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// startLimited starts a daemon that may have so many descriptors. With CAP_SYS_RESOURCE it would raise
// the limit again.
func startLimited(t *testing.T, limit int, text string, values ...any) *configured {
	t.Helper()
	drop := ""
	if os.Geteuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("setpriv(1) is missing, and as root there is no other way to a limit that holds")
		}
		drop = "setpriv --reuid=65534 --regid=65534 --clear-groups "
	}
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c := &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}
	c.write(t, text, values...)
	if err := os.Chmod(c.file, 0o644); err != nil {
		t.Fatal(err)
	}
	c.begin(t, exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec %s"$0" run -c "$1"`, limit, drop), binary, c.file))
	return c
}

// checkServed connects, and wants its own bytes back.
func checkServed(to net.Addr, owner string) error {
	c, err := net.DialTimeout(to.Network(), to.String(), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	text := bytes.Repeat([]byte(owner+" "), 1+2000/len(owner))
	if _, err := c.Write(text); err != nil {
		return fmt.Errorf("%s: %w", owner, err)
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(c, back); err != nil {
		return fmt.Errorf("%s: %w", owner, err)
	}
	if crc32.ChecksumIEEE(back) != crc32.ChecksumIEEE(text) {
		return fmt.Errorf("%s: others' bytes: %.60q", owner, back)
	}
	return nil
}

// echoFrom is an upstream that answers each datagram with the port that it came from, and itself.
func echoFrom(t *testing.T) net.Addr {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.(*net.UDPConn).SetReadBuffer(4 << 20)
	var all sync.WaitGroup
	all.Go(func() {
		b := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(fmt.Appendf(nil, "%d %s", from.(*net.UDPAddr).Port, b[:n]), from)
		}
	})
	t.Cleanup(func() { c.Close(); all.Wait() })
	return c.LocalAddr()
}

// talker is a client of datagrams that sends the next one as soon as it has its answer.
type talker struct {
	name string
	conn net.Conn
	port string       // of its flow towards the upstream
	had  atomic.Int64 // answers by that port
	last time.Time    // when it sent what was answered last
	lost string       // how its flow was lost while it was in use
}

// A flow that goes on keeps its place for talkPlace after each datagram, and one that was answered once for
// firstPlace, at least.
const talkPlace, firstPlace = 5 * time.Second, 250 * time.Millisecond

func (x *talker) talk(stop *atomic.Bool) error {
	b := make([]byte, 2048)
	for n := 0; !stop.Load(); n++ {
		text, sent := fmt.Sprintf("%s %d", x.name, n), time.Now()
		if _, err := x.conn.Write([]byte(text)); err != nil {
			return err
		}
		// One that is not let in asks again.
		for deadline := sent.Add(firstPlace / 3); ; {
			x.conn.SetReadDeadline(deadline)
			k, err := x.conn.Read(b)
			if err != nil {
				break
			}
			port, answer, _ := strings.Cut(string(b[:k]), " ")
			if owner, _, _ := strings.Cut(answer, " "); owner != x.name {
				return fmt.Errorf("%s got the answer to %q", x.name, answer)
			}
			if answer != text {
				continue // to an earlier one
			}
			if port != x.port {
				// It is silent for the relay for less than since it sent the last one that was answered.
				had, place := x.had.Load(), talkPlace
				if had == 1 {
					place = firstPlace
				}
				if silent := time.Since(x.last); had > 0 && silent < place {
					x.lost = fmt.Sprintf("%s lost its flow after %d answers; it was silent for less than %v", x.name, had, silent)
				}
				x.port = port
				x.had.Store(0)
			}
			x.had.Add(1)
			x.last = sent
			break
		}
	}
	return nil
}

// With 256 descriptors, and more streams and flows of datagrams than there are descriptors for: each stream is served,
// the flows that have got in stay, and each byte comes to its owner.
func TestFewDescriptorsForBothKinds(t *testing.T) {
	const talkers, let, clients, rounds = 200, 40, 120, 2
	up := speakNothing(t)
	d := startLimited(t, 256, "engine: {loops: 2}\nlog: {flows: none}\nlisteners:\n  s: {listen: 'tcp://127.0.0.1:0', to: '{0}'}\n  g: {listen: 'udp://127.0.0.1:0', to: 'udp://{1}'}\n",
		url(up), echoFrom(t))
	streams, grams := d.at("s"), d.at("g")
	var stop atomic.Bool
	var all sync.WaitGroup
	xs := make([]*talker, talkers)
	for i := range xs {
		c, err := net.Dial("udp", grams.String())
		if err != nil {
			t.Fatal(err)
		}
		xs[i] = &talker{name: fmt.Sprint("talker-", i), conn: c}
	}
	for _, x := range xs {
		all.Go(func() {
			defer x.conn.Close()
			if err := x.talk(&stop); err != nil {
				t.Error(err)
			}
		})
	}
	in := func(answers int64) (n int) {
		for _, x := range xs {
			if x.had.Load() >= answers {
				n++
			}
		}
		return n
	}
	defer all.Wait()
	defer stop.Store(true)
	testwait.Until(t, "datagrams have their part of the descriptors", func() bool { return in(2) >= let })
	var served sync.WaitGroup
	for i := range clients {
		served.Go(func() {
			for n := range rounds {
				if err := checkServed(streams, fmt.Sprintf("client %d of round %d", i, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	served.Wait()
	testwait.Until(t, "flows of datagrams go on, and further clients knock", func() bool {
		return in(20) >= let && d.metric("penstock_datagrams_dropped_total", `reason="no-room"`) >= 150
	})
	if n := d.metric("penstock_flows_ended_total", `cause="no-descriptors"`); n != 0 {
		t.Errorf("%v flows ended without a descriptor", n)
	}
	stop.Store(true)
	all.Wait()
	for _, x := range xs {
		if x.lost != "" {
			t.Error(x.lost)
		}
	}
	t.Logf("%d of %d were let in", in(1), talkers)
}

// speakNothing is an upstream of streams that echoes, and says nothing by itself.
func speakNothing(t *testing.T) net.Addr {
	l := testnet.Listen(t, "tcp4")
	acceptAll(t, l, func(c net.Conn) {
		defer c.Close()
		io.Copy(c, c)
	})
	return l.Addr()
}

// Many short connections, few descriptors, and an upstream that is slow to accept: it serves one client after the
// other, and at first none. All are served.
func TestFewDescriptorsAndASlowUpstream(t *testing.T) {
	const clients = 600
	l := testnet.Listen(t, "tcp4")
	d := startLimited(t, 128, "engine: {loops: 2}\nlog: {flows: none}\nlisteners: {s: {listen: 'tcp://127.0.0.1:0', to: '{0}'}}\n", url(l.Addr()))
	at := d.at("s")
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			if err := checkServed(at, fmt.Sprint("client ", i)); err != nil {
				t.Error(err)
			}
		})
	}
	testwait.Until(t, "clients wait", func() bool { return d.metric("penstock_overload_shed_total", `action="clients-wait"`) > 0 })
	// Longer than a client that was accepted would wait for a descriptor.
	time.Sleep(1100 * time.Millisecond)
	var upstream sync.WaitGroup
	upstream.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c)
			c.Close()
		}
	})
	all.Wait()
	l.Close()
	upstream.Wait()
	for _, cause := range []string{"no-descriptors", "no-upstream", "connect-timeout"} {
		if n := d.metric("penstock_flows_ended_total", fmt.Sprintf("cause=%q", cause)); n != 0 {
			t.Errorf("%v flows ended with %s", n, cause)
		}
	}
}
