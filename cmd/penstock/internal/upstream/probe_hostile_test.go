package upstream

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// aCheck is a check on a connection, and what a member that is well says in it, in pieces: each but the first one after something was received.
type aCheck struct {
	name  string
	check func(net.Conn) error
	says  []string
	need  int // bytes of them after which the check passes
}

// wellBehaved are one of each kind of check that has steps, whose members are well.
func wellBehaved() []aCheck {
	greeting := mysqlSays(0, "\x0a8.4.0\x00\x05\x00\x00\x00abcdefgh\x00")
	refused := mysqlSays(4, "\xff\x15\x04#28000Access denied")
	switched := mysqlSays(2, "\xfecaching_sha2_password\x00abc\x00")
	steps := &spec.Check{Kind: "send-expect", Expect: []byte("220 "), Then: []spec.Exchange{
		{Send: []byte("EHLO x\r\n"), Expect: []byte("250 ")}, {Expect: []byte("\r\n")}, {Send: []byte("QUIT\r\n"), Expect: []byte("221")}}}
	postgres := func(c net.Conn) error { return postgresCheck(c, &spec.Check{User: "me"}) }
	mysql := func(c net.Conn) error { return mysqlCheck(c, &spec.Check{User: "me"}) }
	list := []aCheck{
		{"send-expect", func(c net.Conn) error { return sendExpect(c, steps) }, []string{"220 mail\r\n", "250-mail\r\n250 x\r\n", "221 bye"}, -len(" bye")},
		{"postgres that asks", postgres, []string{"", postgresSays('R', "\x00\x00\x00\x05abcd")}, 0},
		{"postgres that refuses", postgres, []string{"", postgresSays('E', "SFATAL\x00C28P01\x00Mno\x00\x00")}, 0},
		{"postgres that lets in", postgres, []string{"", postgresSays('R', "\x00\x00\x00\x00")}, 0},
		{"mysql that refuses", mysql, []string{greeting, mysqlSays(2, "\xff\x15\x04#28000Access denied")}, 0},
		{"mysql that asks", mysql, []string{greeting, switched, refused}, 0},
		{"mysql that lets in", mysql, []string{greeting, mysqlSays(2, "\x00\x00\x00\x02\x00\x00\x00")}, 0},
	}
	for i := range list {
		for _, s := range list[i].says {
			list[i].need += len(s)
		}
	}
	return list
}

// serveBytes says the first n bytes of what a member says, each by itself, and ends.
func serveBytes(c net.Conn, says []string, n int) {
	defer c.Close()
	received := make(chan struct{}, 64)
	go func() {
		defer close(received)
		for b := make([]byte, 4096); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			received <- struct{}{}
		}
	}()
	for i, piece := range says {
		if i > 0 {
			if _, ok := <-received; !ok {
				return
			}
		}
		for _, b := range []byte(piece) {
			if n--; n < 0 {
				return
			}
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}
}

// A member whose words come byte by byte passes; one that ends after any of them but the last does not.
func TestChecksCutAnywhere(t *testing.T) {
	for _, c := range wellBehaved() {
		for n := range c.need + 1 {
			own, peer := net.Pipe()
			go serveBytes(peer, c.says, n)
			err := c.check(own)
			own.Close()
			if (err == nil) != (n == c.need) {
				t.Errorf("%s: after %d of %d bytes: %v", c.name, n, c.need, err)
			}
		}
	}
}

// endless is a connection whose peer says the same for ever, and takes everything.
type endless struct {
	net.Conn
	text string
	at   int
	read int // bytes
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.text[e.at%len(e.text)]
		e.at++
	}
	e.read += len(b)
	return len(b), nil
}

func (e *endless) Write(b []byte) (int, error) { return len(b), nil }

// Whatever a member says without end, a check ends, and has read no more than it may.
func TestChecksOfEndlessMembers(t *testing.T) {
	texts := []string{"x", "\x00", "\xff", "\n", "220 \r\n", "\x0a", postgresSays('R', "\x00\x00\x00\x00"), postgresSays('E', "C28000\x00\x00"), "R\x00\x00\xff\xff", "E\x00\x01\x00\x03",
		mysqlSays(0, "\x0a\x00"), mysqlSays(0, "\xfe"), mysqlSays(0, "\x01"), "\xff\xff\x00\x00\x0a", "\xff\xff\xff\x00"}
	for _, c := range wellBehaved() {
		for _, text := range texts {
			e := &endless{text: text}
			err := c.check(e)
			if most := (mysqlMostAsked+3)*maxAnswer + 4096; e.read > most {
				t.Errorf("%s: %.10q: %d bytes, want at most %d (%v)", c.name, text, e.read, most, err)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("%s: %.10q: an error of %d bytes", c.name, text, len(err.Error()))
			}
		}
	}
	e := &endless{text: "x"}
	if err := sendExpect(e, &spec.Check{Kind: "send-expect", Expect: []byte("y")}); err == nil || e.read > 2*maxAnswer {
		t.Errorf("%v after %d bytes", err, e.read)
	}
}

// An answer that is expected is found wherever it is cut.
func TestExpectAcrossReads(t *testing.T) {
	text := []byte("abaabaaab;")
	for first := range len(text) {
		for second := first; second <= len(text); second++ {
			own, peer := net.Pipe()
			go func() {
				for _, piece := range slices.DeleteFunc([][]byte{text[:first], text[first:second], text[second:]}, func(b []byte) bool { return len(b) == 0 }) {
					peer.Write(piece)
				}
				peer.Close()
			}()
			err := sendExpect(own, &spec.Check{Kind: "send-expect", Expect: []byte("baaab"), Then: []spec.Exchange{{Expect: []byte(";")}}})
			own.Close()
			if err != nil {
				t.Errorf("%q %q %q: %v", text[:first], text[first:second], text[second:], err)
			}
		}
	}
}

// BenchmarkByteByByte measures what a member costs that says as much as it may, byte by byte, and nearly what is expected.
func BenchmarkByteByByte(b *testing.B) {
	for b.Loop() {
		sendExpect(&slow{}, &spec.Check{Kind: "send-expect", Expect: []byte(strings.Repeat("x", 99) + "y")})
	}
}

type slow struct{ net.Conn }

func (*slow) Read(b []byte) (int, error)  { b[0] = 'x'; return 1, nil }
func (*slow) Write(b []byte) (int, error) { return len(b), nil }

// Checks and questions to agents that hang end with a reload that changes them, and with the Set, whatever they wait for: nothing of them is left.
func TestChecksThatHangEnd(t *testing.T) {
	testnet.CheckLeaks(t)
	l := listen(t, "tcp")
	defer l.Close()
	var open, all atomic.Int32
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Add(1)
			open.Add(1)
			wg.Go(func() {
				io.Copy(io.Discard, c)
				c.Close()
				open.Add(-1)
			})
		}
	})
	defer wg.Wait()
	defer l.Close()
	to := addrOf(l.Addr()).AddrPort
	long := time.Hour
	tls, starttls := spec.DefaultClientTLS, spec.DefaultClientTLS
	tls.NoVerify, starttls.NoVerify, starttls.StartTLS = true, true, "postgresql"
	checks := []*spec.Check{
		{Kind: "send-expect", Expect: []byte("x")}, {Kind: "send-expect", Send: []byte("x"), Then: []spec.Exchange{{Expect: []byte("x")}}},
		{Kind: "postgres"}, {Kind: "mysql"}, {Kind: "http"}, {Kind: "tcp", TLS: &tls}, {Kind: "postgres", TLS: &starttls},
	}
	const each = 9
	config := func(round int) (groups []*spec.Group) {
		for i, c := range checks {
			c := *c
			c.Every, c.Timeout, c.Rise, c.Fall = long, long, 1+round, 1
			g := &spec.Group{Name: fmt.Sprint("g", i), Balance: "round-robin", Check: &c, Agent: &spec.Agent{Port: to.Port(), Every: long, Timeout: long + time.Duration(round)}}
			for j := range each {
				g.Members = append(g.Members, spec.Member{Name: fmt.Sprint("m", j), Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: to.Addr().String(), Port: to.Port()}})
				if j > 0 {
					g.Members[j].To.Port, g.Members[j].CheckPort = uint16(j), to.Port()
				}
			}
			groups = append(groups, g)
		}
		return groups
	}
	s := NewSet(Options{})
	defer s.Close()
	n := int32(2 * each * len(checks))
	for round := range 4 {
		s.Apply(config(round))
		testwait.Until(t, "everything hangs, and nothing of before", func() bool { return open.Load() == n && all.Load() >= int32(round+1)*n })
	}
	s.Close()
	testwait.Until(t, "nothing hangs", func() bool { return open.Load() == 0 })
}
