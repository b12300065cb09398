package main

import (
	"bytes"
	"crypto/sha256"
	be "encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// echoServer echoes streams and returns its URL.
func echoServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.(*net.TCPConn).CloseWrite()
				c.Close()
			}()
		}
	}()
	return url(l.Addr())
}

// ownBytes are bytes that belong to one client and position: nobody else's look like them.
func ownBytes(client, part uint64, n int) []byte {
	var b []byte
	for i := uint64(0); len(b) < n; i++ {
		var seed [24]byte
		be.BigEndian.PutUint64(seed[:], client)
		be.BigEndian.PutUint64(seed[8:], part)
		be.BigEndian.PutUint64(seed[16:], i)
		sum := sha256.Sum256(seed[:])
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// Members come, move and go as fast as the API takes it, while reloads, health checks and drains of
// the same group are under way. Flows of members that are kept lose no byte, each ended flow has one
// record, and when all have ended every gauge is at zero.
func TestMembersChurn(t *testing.T) {
	t.Parallel()
	servers := []string{echoServer(t), echoServer(t), echoServer(t), echoServer(t)}
	const text = `
reload: {watch: false}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: keep}}}
groups:
  all:
    balance: {4}
    panic: 0.5
    queue: {size: 100}
    check: {tcp: {every: 100ms, timeout: 60s}}
    members: [{name: fixed, to: "{0}"}, {name: other, to: "{1}", weight: {5}}]
`
	values := func(balance string, weight int) []any {
		return []any{servers[0], servers[1], servers[2], servers[3], balance, weight}
	}
	d := runFile(t, text, values("round-robin", 1)...)
	begin := time.Now()
	duration := 3 * time.Second
	var changes, flows, broken atomic.Int64
	var work sync.WaitGroup
	for k := range 3 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(k), 1))
			for i := 0; time.Since(begin) < duration; i++ {
				name := fmt.Sprintf("m-%d-%d", k, i)
				to := servers[r.IntN(4)]
				if _, err := d.admin.AddMember(d.ctx(), "all", api.NewMember{Name: name, Address: to, Weight: 1 + r.IntN(5)}); err != nil {
					t.Error(err)
					return
				}
				switch r.IntN(4) {
				case 0:
					d.admin.SetMember(d.ctx(), "all", name, api.MemberChange{Address: servers[r.IntN(4)]})
				case 1:
					d.admin.SetMember(d.ctx(), "all", "other", api.MemberChange{State: "drain"})
					d.admin.SetMember(d.ctx(), "all", "other", api.MemberChange{State: "file"})
				}
				if _, err := d.admin.RemoveMember(d.ctx(), "all", name); err != nil {
					t.Error(err)
					return
				}
				changes.Add(2)
			}
		})
	}
	work.Go(func() {
		balances := []string{"round-robin", "least-connections", "p2c", "maglev", "random", "first"}
		for i := 0; time.Since(begin) < duration; i++ {
			d.write(t, text, values(balances[i%len(balances)], 1+i%3)...)
			if _, err := d.admin.Reload(d.ctx()); err != nil {
				t.Error(err)
				return
			}
			if _, err := d.admin.MemberChanges(d.ctx()); err != nil {
				t.Error(err)
			}
			served := flows.Load()
			testwait.For(func() bool { return flows.Load() >= served+8 || time.Since(begin) >= duration })
		}
	})
	for k := range 8 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(k), 2))
			for i := 0; time.Since(begin) < duration; i++ {
				if err := churnFlow(d.at("a"), uint64(k)<<32|uint64(i), 1+r.IntN(4)); err != nil {
					broken.Add(1)
					t.Errorf("client %d, flow %d: %v", k, i, err)
					return
				}
				flows.Add(1)
			}
		})
	}
	work.Wait()
	t.Logf("%d changes, %d flows", changes.Load(), flows.Load())
	testwait.Until(t, "all flows have ended", func() bool {
		s, err := d.admin.Status(d.ctx())
		return err == nil && s.Totals.Flows == 0
	})
	groups, err := d.admin.Groups(d.ctx())
	if err != nil {
		t.Fatal(err)
	}
	g := groups.Groups[0]
	want := flows.Load()
	if g.Flows != 0 || g.Begun != want || len(g.Members) != 2 {
		t.Errorf("group: %d flows open, %d begun, %d members; want 0, %d, 2", g.Flows, g.Begun, len(g.Members), want)
	}
	for _, m := range g.Members {
		if m.Flows != 0 {
			t.Errorf("member %s has %d open flows", m.Name, m.Flows)
		}
	}
	if ended := int64(d.metric("penstock_flows_ended_total", `group="all"`)); ended != want {
		t.Errorf("%d flows of the group have ended, want %d", ended, want)
	}
	d.signal(syscall.SIGTERM)
	d.mustExit(0)
	d.records(int(want)) // one each
}

// churnFlow sends parts and checks each of them.
func churnFlow(to net.Addr, client uint64, parts int) error {
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	for p := range parts {
		want := ownBytes(client, uint64(p), 1000)
		if _, err := c.Write(want); err != nil {
			return err
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil {
			return fmt.Errorf("part %d: %w", p, err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("part %d: wrong bytes", p)
		}
	}
	c.(*net.TCPConn).CloseWrite()
	if n, err := io.Copy(io.Discard, c); n > 0 || err != nil {
		return fmt.Errorf("at the end: %d bytes, %v", n, err)
	}
	return nil
}
