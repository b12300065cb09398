package upstream

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// lines serves a greeting, the answers to a client's lines, and the end after the last one.
func lines(greeting string, answers map[string]string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, greeting)
		from := bufio.NewScanner(c)
		for range answers {
			if !from.Scan() {
				return
			}
			io.WriteString(c, answers[strings.TrimRight(from.Text(), "\r")])
		}
	}
}

// Steps of a check, as HAProxy's tcp-check rules for Redis and for mail servers have them.
func TestProbeSteps(t *testing.T) {
	exchange := func(send, expect string) spec.Exchange {
		return spec.Exchange{Send: []byte(send), Expect: []byte(expect)}
	}
	redis := []spec.Exchange{exchange("PING\r\n", "+PONG"), exchange("info replication\r\n", "role:master"), exchange("QUIT\r\n", "+OK")}
	mail := []spec.Exchange{exchange("", "220 "), exchange("EHLO penstock\r\n", "250 "), exchange("QUIT\r\n", "221")}
	both := func(role string) func(net.Conn) {
		answers := map[string]string{"PING": "+PONG\r\n", "info replication": "$40\r\n# Replication\r\nrole:" + role + "\r\nx\r\n"}
		if role == "master" {
			answers["QUIT"] = "+OK\r\n"
		}
		return lines("", answers)
	}
	for _, c := range []struct {
		name   string
		serve  func(net.Conn)
		steps  []spec.Exchange
		faulty string
	}{
		{"a primary", both("master"), redis, ""},
		{"a replica", both("slave"), redis, `step 2: the answer is "$40\r\n# Replication\r\nrole:slave\r\nx\r\n"; expected: "role:master"`},
		{"mail", lines("220 mail ESMTP\r\n", map[string]string{"EHLO penstock": "250-mail\r\n250 HELP\r\n", "QUIT": "221 bye\r\n"}), mail, ""},
		{"mail that is full", lines("421 too busy\r\n", nil), mail, `the answer is "421 too busy\r\n"; expected: "220 "`},
		{"one after the other", lines("one two three\n", nil), []spec.Exchange{exchange("", "two"), exchange("", "three")}, ""},
		{"in another order", lines("one three two\n", nil), []spec.Exchange{exchange("", "two"), exchange("", "three")}, `step 2: the answer is "\n"; expected: "three"`},
		// An answer comes after what was sent.
		{"an old answer", lines("+OK +OK\n", map[string]string{"x": "-ERR\n"}), []spec.Exchange{exchange("", "+OK"), exchange("x\n", "+OK")}, `step 2: the answer is "-ERR\n"; expected: "+OK"`},
		// As the tests of HAProxy (reg-tests/checks) and Envoy (health_checker_impl_test.cc) have them.
		{"redis, an error", lines("", map[string]string{"PING": "-ERR unknown command\r\n"}), redis[:1], `the answer is "-ERR unknown command\r\n"; expected: "+PONG"`},
		{"redis, a password is missing", lines("", map[string]string{"PING": "-NOAUTH Authentication required.\r\n"}), redis[:1], `the answer is "-NOAUTH Authentication required.\r\n"; expected: "+PONG"`},
		{"redis, no disk", lines("", map[string]string{"PING": "-MISCONF Redis is configured to save\r\n"}), redis[:1], `the answer is "-MISCONF Redis is configured to save\r\n"; expected: "+PONG"`},
		{"redis, a key is not there", lines("", map[string]string{"EXISTS maintenance": ":0\r\n"}), []spec.Exchange{exchange("EXISTS maintenance\r\n", ":0")}, ""},
		{"redis, a key is there", lines("", map[string]string{"EXISTS maintenance": ":1\r\n"}), []spec.Exchange{exchange("EXISTS maintenance\r\n", ":0")}, `the answer is ":1\r\n"; expected: ":0"`},
		{"redis, the end", lines("", map[string]string{"PING": ""}), redis[:1], `no answer (EOF); expected: "+PONG"`},
		{"mail, no EHLO", lines("220 mail ESMTP\r\n", map[string]string{"EHLO penstock": "502 no\r\n"}), mail, `step 2: the answer is "502 no\r\n"; expected: "250 "`},
		{"mail, an end without a word", lines("220 mail ESMTP\r\n", map[string]string{"EHLO penstock": "250 HELP\r\n", "QUIT": ""}), mail, `step 3: no answer (EOF); expected: "221"`},
		{"bytes with others between", lines("\x00\x01\x99\x02\x03\n", nil), []spec.Exchange{exchange("", "\x01"), exchange("", "\x02")}, ""},
		{"bytes of which one is missing", lines("\x00\x01\x99\x03\n", nil), []spec.Exchange{exchange("", "\x01"), exchange("", "\x02")}, `step 2: the answer is "\x99\x03\n"; expected: "\x02"`},
		{"the same bytes twice", lines("\x01\n", nil), []spec.Exchange{exchange("", "\x01"), exchange("", "\x01")}, `step 2: the answer is "\n"; expected: "\x01"`},
		{"any answer", lines("", map[string]string{"x": "y\n", "z": "-\n"}), []spec.Exchange{exchange("x\n", ""), exchange("z\n", "")}, ""},
	} {
		first := c.steps[0]
		check := &spec.Check{Kind: "send-expect", Send: first.Send, Expect: first.Expect, Then: c.steps[1:]}
		if err := ask(t, check, 0, serve(t, listen(t, "tcp"), c.serve), longEnough); text(err) != c.faulty {
			t.Errorf("%s: %v; want %q", c.name, err, c.faulty)
		}
	}
}

// A member's check goes to its own port and address.
func TestProbeElsewhere(t *testing.T) {
	to := serve(t, listen(t, "tcp"), func(net.Conn) {})
	m := &probed{group: &spec.Group{Check: &spec.Check{Kind: "tcp", Port: 1}}, addr: to, at: checkAt{port: to.AddrPort.Port()}}
	m.addr.AddrPort = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 1)
	m.at.addr = to.AddrPort.Addr()
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	if _, err := newProber(nil).probe(ctx, m); err != nil {
		t.Error(err)
	}
}

// A reload that moves a member's check has it checked there at once; any other reload changes nothing.
func TestCheckMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		config := func(port uint16) *spec.Group {
			g := &spec.Group{Name: "g", Balance: "round-robin", Members: members(1), Check: check()}
			g.Members[0].CheckPort = port
			return g
		}
		s, g := set(t, config(81), Options{probe: w.probe})
		time.Sleep(time.Second)
		for _, c := range []struct {
			port  uint16
			asked int
		}{{81, 1}, {82, 2}, {82, 2}, {0, 3}} {
			s.Apply([]*spec.Group{config(c.port)})
			time.Sleep(time.Second)
			synctest.Wait()
			if at, n := g.members[0].checker.at, w.asked("tcp://10.0.0.0:80"); at.port != c.port || n != c.asked {
				t.Errorf("with check-port %d: at %v, asked %d times, want %d", c.port, at, n, c.asked)
			}
		}
	})
}

// Members that are down are asked at their own pace.
func TestEveryDown(t *testing.T) {
	c := &checker{m: &Member{}, cfg: &spec.Check{Every: time.Second, EveryDown: time.Minute}}
	for state, want := range map[checkState]time.Duration{unknown: time.Second, passing: time.Second, failing: time.Minute} {
		c.m.health.state = state
		if got := c.next(); got != want {
			t.Errorf("in state %d after %v, want %v", state, got, want)
		}
	}
	c.cfg = &spec.Check{Every: time.Second}
	if got := c.next(); got != time.Second {
		t.Errorf("without every-down after %v", got)
	}
}

// said is what a server answers in one piece, and what it must have got from its client before.
type said struct {
	first string // before the client says anything
	want  string // of the client's first packet
	then  string
}

func (s *said) serve(c net.Conn) {
	io.WriteString(c, s.first)
	b := make([]byte, 4096)
	if n, _ := c.Read(b); !strings.Contains(string(b[:n]), s.want) {
		return
	}
	io.WriteString(c, s.then)
	c.(interface{ CloseWrite() error }).CloseWrite()
	io.Copy(io.Discard, c)
}

// postgresSays is a message of a server of PostgreSQL.
func postgresSays(kind byte, body string) string {
	return string(kind) + string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))) + body
}

func TestProbePostgres(t *testing.T) {
	hello := "\x00\x03\x00\x00user\x00me\x00database\x00mine\x00application_name\x00penstock\x00\x00"
	refuses := func(code, message string) string {
		return postgresSays('E', "SFATAL\x00C"+code+"\x00M"+message+"\x00\x00")
	}
	for _, c := range []struct {
		name, then, faulty string
	}{
		{"lets in", postgresSays('R', "\x00\x00\x00\x00"), ""},
		{"asks for a password", postgresSays('R', "\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00"), ""},
		{"does not know the user", refuses("28000", `role "me" does not exist`), ""},
		{"does not know the database", refuses("3D000", `database "mine" does not exist`), ""},
		{"begins", refuses("57P03", "the database system is starting up"), `the server says "the database system is starting up" (57P03)`},
		{"is full", refuses("53300", "sorry, too many clients already"), `the server says "sorry, too many clients already" (53300)`},
		{"another protocol", "HTTP/1.1 400 Bad Request\r\n", `the answer begins with "HTTP/", which is not PostgreSQL's`},
		{"does not speak TLS", "N", `the member has ended the connection; the answer ends with "N"`},
		{"something else of the protocol", postgresSays('S', "server_version\x0015\x00"), `the answer begins with "S\x00\x00\x00\x16", which is not PostgreSQL's`},
		{"refuses the password", refuses("28P01", "password authentication failed"), ""},
		{"goes away", refuses("57P01", "terminating connection"), `the server says "terminating connection" (57P01)`},
		{"too long", "R\x7f\xff\xff\xff", `the answer begins with "R\x7f\xff\xff\xff", which is not PostgreSQL's`},
		{"too short", "R\x00\x00\x00\x00", `the answer begins with "R\x00\x00\x00\x00", which is not PostgreSQL's`},
		{"asks for nothing", postgresSays('R', "\x00\x00\x00"), `the answer "\x00\x00\x00" asks for nothing, which is not PostgreSQL's`},
		{"an error without a code", postgresSays('E', "x"), `the error "x" has no code, which is not PostgreSQL's`},
	} {
		s := &said{want: hello, then: c.then}
		err := ask(t, &spec.Check{Kind: "postgres", User: "me", Database: "mine"}, 0, serve(t, listen(t, "tcp"), s.serve), longEnough)
		if text(err) != c.faulty {
			t.Errorf("%s: %v; want %q", c.name, err, c.faulty)
		}
	}
	end := serve(t, listen(t, "tcp"), func(c net.Conn) { c.Read(make([]byte, 4096)); io.WriteString(c, "R\x00\x00\x00\x08\x00") })
	if err := ask(t, &spec.Check{Kind: "postgres", User: "me"}, 0, end, longEnough); text(err) != `the member has ended the connection; the answer ends with "\x00"` {
		t.Error(err)
	}
}

// mysqlSays is a packet of a server of MySQL.
func mysqlSays(number byte, body string) string {
	return string([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), number}) + body
}

func TestProbeMySQL(t *testing.T) {
	greeting := mysqlSays(0, "\x0a11.8.3-MariaDB\x00\x05\x00\x00\x00abcdefgh\x00\xfe\xff-\x02\x00\xff\xc1\x15")
	refuses := func(code uint16, message string) string {
		return "\xff" + string(binary.LittleEndian.AppendUint16(nil, code)) + message
	}
	for _, c := range []struct {
		name, first, then, faulty string
	}{
		{"lets in", greeting, mysqlSays(2, "\x00\x00\x00\x02\x00\x00\x00"), ""},
		{"refuses the user", greeting, mysqlSays(2, refuses(1045, "#28000Access denied for user 'me'")), ""},
		{"wants TLS", greeting, mysqlSays(2, refuses(3159, "#08004Connections using insecure transport are prohibited while --require_secure_transport=ON.")), ""},
		{"asks for another password", greeting, mysqlSays(2, "\xfecaching_sha2_password\x00abc\x00") + mysqlSays(4, refuses(1045, "#28000Access denied")), ""},
		{"asks for three passwords", greeting, mysqlSays(2, "\xfeed25519\x00abc\x00") + mysqlSays(4, "\xfemysql_native_password\x00abc\x00") + mysqlSays(6, "\x01\x04") + mysqlSays(8, refuses(1045, "#28000Access denied")), ""},
		{"asks for passwords without end", greeting, strings.Repeat(mysqlSays(2, "\xfex\x00"), mysqlMostAsked), `the server asks for passwords without end, which is not MySQL's`},
		{"says something else", greeting, mysqlSays(2, "\x42\x00"), `the answer to a session begins with "B\x00", which is not MySQL's`},
		{"asks, and says something else", greeting, mysqlSays(2, "\xfex\x00") + mysqlSays(4, "\x03abc"), `the answer to a session begins with "\x03abc", which is not MySQL's`},
		{"has too many connections", mysqlSays(0, refuses(1040, "Too many connections")), "", `the server says "Too many connections" (1040)`},
		{"refuses the host", mysqlSays(0, refuses(1130, "Host 'x' is not allowed to connect")), "", `the server says "Host 'x' is not allowed to connect" (1130)`},
		{"blocks the host", mysqlSays(0, refuses(1129, "Host 'x' is blocked because of many connection errors")), "", `the server says "Host 'x' is blocked because of many connection errors" (1129)`},
		{"goes away", greeting, mysqlSays(2, refuses(1053, "#08S01Server shutdown in progress")), `the server says "Server shutdown in progress" (1053)`},
		{"another version", mysqlSays(0, "\x093.20\x00"), "", `the greeting is of version 9 of MySQL's protocol; expected: 10`},
		{"another protocol", "SSH-2.0-OpenSSH_10.0\r\n", "", `the answer begins with "SSH-", which is not MySQL's`},
		{"nothing", mysqlSays(0, ""), "", `the answer begins with "\x00\x00\x00\x00", which is not MySQL's`},
		{"an error without a code", mysqlSays(0, "\xff\x01"), "", `the error has no code, which is not MySQL's`},
	} {
		s := &said{first: c.first, want: "me\x00\x00mysql_native_password\x00", then: c.then}
		err := ask(t, &spec.Check{Kind: "mysql", User: "me"}, 0, serve(t, listen(t, "tcp"), s.serve), longEnough)
		if text(err) != c.faulty {
			t.Errorf("%s: %v; want %q", c.name, err, c.faulty)
		}
	}
}

// Whatever a database says, a check ends with a short line.
func FuzzDatabaseChecks(f *testing.F) {
	f.Add([]byte(postgresSays('E', "C57P03\x00Mx\x00\x00")))
	f.Add([]byte(postgresSays('R', "\x00\x00\x00\x00")))
	f.Add([]byte(postgresSays('E', "C\xc9\xf3}\n7\x00\x00"))) // a code of five bytes, which is none
	f.Add([]byte(mysqlSays(0, "\x0a8\x00") + mysqlSays(2, "\xfex\x00") + mysqlSays(4, "\xff\x15\x04#28000x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, check := range []func(net.Conn, *spec.Check) error{postgresCheck, mysqlCheck} {
			own, peer := net.Pipe()
			go io.Copy(io.Discard, peer)
			go func() {
				peer.Write(b)
				peer.Close()
			}()
			if err := check(own, &spec.Check{User: "u"}); err != nil && (len(err.Error()) > 1000 || strings.ContainsFunc(err.Error(), unicode.IsControl)) {
				t.Errorf("%q", fmt.Sprint(err))
			}
			own.Close()
		}
	})
}
