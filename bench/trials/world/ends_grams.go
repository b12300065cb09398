//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// gramClients is how many clients hold a datagram flow. They are at the listener grams, whose group has the members of pool and the same
// checks, down and up; its members learn from PROXY headers who the client is.
const gramClients = 4

// signature is what a PROXY header of version 2 begins with: a command of proxying, for UDP over IPv4.
const signature = "\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c"

// headerWords are which datagrams have a header.
var headerWords = []string{"each", "first"}

// serveGrams is the datagram side of a member. It goes on when the member has stopped, for only the check says that it has. It answers with its
// name, the client's address as the header says it, and what the client has sent.
func serveGrams(name, at, header string) (stop func(), err error) {
	c, err := net.ListenPacket("udp", at)
	if err != nil {
		return nil, err
	}
	go func() {
		clients := map[string]string{} // by the relay's address, which a flow has for itself
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			message := b[:n]
			client, of := clients[from.String()], from.String()
			if header == "each" {
				client = ""
			}
			if rest, ok := bytes.CutPrefix(message, []byte(signature)); ok && len(rest) >= 12 {
				client = netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest[:4])), binary.BigEndian.Uint16(rest[8:])).String()
				clients[of], message = client, rest[12:]
			}
			c.WriteTo(fmt.Appendf(nil, "%s %s %s", name, client, message), from)
		}
	}()
	return func() { c.Close() }, nil
}

// A gramClient holds a datagram flow.
type gramClient struct {
	net.Conn
	server string // "": it has no flow
	born   int    // the number of the last event before the flow
	maybe  bool   // the flow may have ended
	asked  bool   // it has sent something while all members were down
	sent   map[string]bool
}

// beginGrams has the clients come, whose address is never banned.
func (r *endsRun) beginGrams() error {
	for range gramClients {
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(r.source(0))}}
		c, err := d.Dial("udp", r.places.ends("grams"))
		if err != nil {
			return err
		}
		r.grams = append(r.grams, &gramClient{Conn: c, sent: map[string]bool{}})
	}
	return nil
}

// endGrams ends the clients, and their flows, whose idle time would not be over at the end of the drain.
func (r *endsRun) endGrams() error {
	for _, c := range r.grams {
		c.Close()
	}
	r.grams = nil
	return r.ask(http.MethodPost, "/v1/bans", fmt.Sprintf(`{"network": %q, "end_flows": true}`, r.source(0)))
}

// ask sends a message and returns who has answered it. Each message is answered once at most, also if the answer is late.
func (c *gramClient) ask(message string) (server string, err error) {
	c.sent[message] = true
	if _, err := c.Write([]byte(message)); err != nil {
		return "", err
	}
	c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b := make([]byte, 512)
	for {
		n, err := c.Read(b)
		if err != nil {
			return "", err
		}
		w := strings.SplitN(string(b[:n]), " ", 3)
		if len(w) != 3 || w[1] != c.LocalAddr().String() || !c.sent[w[2]] {
			return "", fmt.Errorf("%w: %v gets %q, the answer to nothing that it waits for", errWrong, c.LocalAddr(), b[:n])
		}
		if delete(c.sent, w[2]); w[2] == message {
			return w[0], nil
		}
	}
}

// reach asks until somebody answers who may, because datagrams may be lost and flows end a moment after their member is down.
func (r *endsRun) reach(c *gramClient, may func(server string) bool) (server string, err error) {
	var wrong error
	err = proc.Until("an answer from whom it may come", world.Patience, 20*time.Millisecond, func() (err error) {
		if server, err = c.ask(r.probes.next()); errors.Is(err, errWrong) {
			wrong, err = err, nil
		} else if err == nil && !may(server) {
			err = fmt.Errorf("%s answers", server)
		}
		return err
	})
	return server, errors.Join(err, wrong)
}

// silent waits until nobody answers.
func (r *endsRun) silent(c *gramClient) error {
	return proc.Until("no answer, as all members are down", world.Patience, 20*time.Millisecond, func() error {
		server, err := c.ask(r.probes.next())
		if err == nil {
			return fmt.Errorf("%s answers", server)
		}
		return nil
	})
}

// datagrams sees that those datagram flows move that must, with their next datagram, and that the others stay.
func (r *endsRun) datagrams() error {
	up := slices.ContainsFunc(r.pool[1:], (*poolMember).up)
	serves := func(server string) bool { return r.serves("grams", server) }
	for _, c := range r.grams {
		// When it was moved, the backup may have been the last member that was not known to be down, and it stays there if up says so. So it is for
		// a flow that has ended without anybody's knowing: what comes up serves new flows a moment later than it is said to be up.
		stays := func(server string) bool {
			return (c.asked || c.maybe) && r.ends.Up != "close" && server == r.pool[backup].name
		}
		cause, maybe := "", false
		if c.server != "" {
			cause, maybe = r.fate(c.server, c.born, func(m *poolMember) bool { return m.gramMaybe })
		}
		maybe = maybe || c.maybe
		was, err := c.server, error(nil)
		switch {
		case was == "" && !up:
			continue
		case maybe:
			r.gramsUnsure = true
			if !up {
				c.asked = true
				server, err := c.ask(r.probes.next())
				if err == nil && server != was {
					return fmt.Errorf("a datagram flow at %s is at %s, which is down", was, server)
				}
				c.maybe = true
				continue
			}
			c.server, err = r.reach(c, func(server string) bool { return server == was || serves(server) || stays(server) })
			c.maybe = false
		case cause != "":
			r.gramsEnded[cause]++
			if c.server = ""; !up {
				c.asked = true
				err = r.silent(c)
				break
			}
			c.server, err = r.reach(c, serves)
		case was == "":
			c.server, err = r.reach(c, func(server string) bool { return serves(server) || stays(server) })
		default:
			if c.server, err = r.reach(c, func(string) bool { return true }); err == nil && c.server != was {
				err = fmt.Errorf("it has moved to %s", c.server)
			}
		}
		if err != nil {
			return fmt.Errorf("a datagram flow at %q, as old as event %d, whose end is %q (maybe: %v): %w", was, c.born, cause, maybe, err)
		}
		if cause != "" || was != c.server {
			c.born = r.now
		}
		c.asked = c.asked && c.server == ""
	}
	return nil
}
