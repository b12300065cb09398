package packets

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// A packet is looked at once the daemon has told of all flows that had begun Slack after it came: then it is known whose it is, and mostly
// how its flow has ended. Slack is how long a connection may wait for the relay to accept it. Until then packets wait, those of at most
// maxQueued bytes.
const (
	Slack     = time.Second
	maxQueued = 64 << 20
)

// deviceLost is how long a device must be silent before packets of the same direction are taken from another one. A packet passes several
// where there are bridges, bonds or VLANs.
const deviceLost = time.Second

// sinceSlack is by how much a packet may be older than the connection to the member that it is of.
const sinceSlack = 5 * time.Millisecond

// Config is what a capture is bounded by.
type Config struct {
	Snap     int   // bytes of a packet that are written
	MaxBytes int64 // of the file, but for the statistics at its end
	MaxFlows int
	Program  string // that writes the file
	About    string // what was asked for
}

// A Capture writes the packets of flows. It is not safe for concurrent use.
type Capture struct {
	cfg    Config
	w      *writer
	flows  map[uint64]*flow
	at     map[Conn]*side
	sides  []*side // in the order in which they were told
	queue  []Packet
	queued int // bytes

	Full     bool  // MaxBytes were written
	Skipped  int64 // flows beyond MaxFlows
	Packets  int64 // written
	Overflow int64 // packets that were looked at early, because too many waited, and whose flow was not known
}

// flow is one that is captured.
type flow struct {
	api.CaptureFlow
	member *side // the present one
}

// side is one of the two connections of a flow.
type side struct {
	*flow
	conn   Conn
	client bool
	since  time.Time // of a member: when the connection was begun
	before *side     // that had the same addresses

	on                uint32 // the interface of the file
	begun, toldEnd    bool
	received, written int64
	device            [2]int
	last              [2]time.Time
}

// New returns a capture that writes to w.
func New(w io.Writer, cfg Config) *Capture {
	return &Capture{cfg: cfg, w: newWriter(w, cfg.Snap, cfg.Program, cfg.About), flows: map[uint64]*flow{}, at: map[Conn]*side{}}
}

// Flows returns how many flows were told.
func (c *Capture) Flows() int { return len(c.flows) }

// Written returns how many bytes were written.
func (c *Capture) Written() int64 { return c.w.written }

// Open returns how many flows have not ended.
func (c *Capture) Open() (n int) {
	for _, f := range c.flows {
		if f.Ended.IsZero() {
			n++
		}
	}
	return n
}

// LastEnd returns when a flow has ended last; zero: none has.
func (c *Capture) LastEnd() (last time.Time) {
	for _, f := range c.flows {
		if f.Ended.After(last) {
			last = f.Ended
		}
	}
	return last
}

// Err returns the error of writing.
func (c *Capture) Err() error { return c.w.err }

// Tell tells of a flow, or more of one.
func (c *Capture) Tell(told *api.CaptureFlow) {
	f := c.flows[told.ID]
	if f == nil {
		if len(c.flows) >= c.cfg.MaxFlows {
			c.Skipped++
			return
		}
		f = &flow{CaptureFlow: *told}
		c.flows[told.ID] = f
		if conn, ok := connOf(told.Local, told.Peer); ok {
			c.add(&side{flow: f, conn: conn, client: true})
		}
	}
	if told.Ended.IsZero() {
		f.CaptureFlow = *told
	} else {
		f.Ended, f.Cause, f.Reason, f.Error = told.Ended, told.Cause, told.Reason, told.Error
	}
	conn, ok := connOf(told.UpstreamLocal, told.Upstream)
	if ok && conn.Local.IsValid() && (f.member == nil || f.member.conn != conn) {
		f.member = &side{flow: f, conn: conn, since: told.Since}
		c.add(f.member)
	}
}

func (c *Capture) add(s *side) {
	s.before = c.at[s.conn]
	if s.before != nil {
		s.before.before = nil
	}
	c.at[s.conn] = s
	c.sides = append(c.sides, s)
}

// connOf returns the connection between two addresses; false: no packet is of it.
func connOf(local, remote api.Addr) (c Conn, ok bool) {
	if remote.Network.BuiltIn() || !remote.AddrPort.IsValid() {
		return c, false
	}
	c.Protocol = TCP
	if remote.Network.Datagrams() {
		c.Protocol = UDP
	}
	if local.AddrPort.IsValid() && !local.AddrPort.Addr().IsUnspecified() {
		c.Local = plain(local.AddrPort)
	}
	c.Remote = plain(remote.AddrPort)
	return c, true
}

// Terms returns a filter for what was told.
func (c *Capture) Terms() (terms []Term) {
	for _, s := range c.sides {
		terms = append(terms, Term{At(s.conn.Local), At(s.conn.Remote)})
	}
	return terms
}

// Uncovered returns the filter for what was told and the given terms do not take.
func (c *Capture) Uncovered(terms []Term) (more []Term) {
	for _, s := range c.sides {
		if s.conn.Local.IsValid() && !covers(terms, s.conn.Local, s.conn.Remote) {
			more = append(more, Term{At(s.conn.Local), At(s.conn.Remote)})
		}
	}
	return more
}

// Take takes a packet. It keeps a copy of its data.
func (c *Capture) Take(p *Packet) {
	q := *p
	q.Data = append([]byte(nil), p.Data[:min(len(p.Data), c.cfg.Snap)]...)
	c.queue = append(c.queue, q)
	c.queued += len(q.Data)
	for c.queued > maxQueued {
		if !c.next() {
			c.Overflow++
		}
	}
}

// Look looks at the packets of which the daemon has told: all flows that began until through.
func (c *Capture) Look(through time.Time) {
	for len(c.queue) > 0 && through.Sub(c.queue[0].At) >= Slack {
		c.next()
	}
}

// Close looks at all packets, and writes the statistics. dropped is how many packets the kernel has dropped.
func (c *Capture) Close(now time.Time, dropped int64) error {
	for len(c.queue) > 0 {
		c.next()
	}
	for _, s := range c.sides {
		if !s.begun {
			continue
		}
		c.w.statistics(s.on, now, s.received, s.written, dropped, s.end())
		dropped = 0 // they are of no interface, and are told once
	}
	return c.w.err
}

// next looks at the oldest packet, and reports whether its flow is known.
func (c *Capture) next() bool {
	p := &c.queue[0]
	known := c.look(p)
	c.queued -= len(p.Data)
	*p = Packet{}
	c.queue = c.queue[1:]
	return known
}

func (c *Capture) look(p *Packet) bool {
	h, ok := parseHeader(p.Data)
	if !ok {
		return false
	}
	s, direction := c.find(&h)
	if s == nil {
		return false
	}
	if b := s.before; b != nil && !b.Ended.IsZero() && p.At.Before(b.Ended) {
		s = b
	}
	switch {
	case !s.client && p.At.Before(s.since.Add(-sinceSlack)):
		return false // of another flow, whose connection had the same addresses
	case s.Ended.IsZero() || !p.At.After(s.Ended):
	case h.protocol == UDP:
		return false
	case h.flags&(flagSYN|flagACK) == flagSYN: // the addresses have a new connection
		if c.at[s.conn] == s {
			delete(c.at, s.conn)
		}
		return false
	}
	d := direction - inbound
	if s.device[d] != p.Device {
		if s.device[d] != 0 && p.At.Sub(s.last[d]) < deviceLost {
			return true
		}
		s.device[d] = p.Device
	}
	s.last[d] = p.At
	s.received++
	c.write(s, p, &h, direction)
	return true
}

// find finds the side of a packet, and its direction there.
func (c *Capture) find(h *header) (*side, byte) {
	in, out := Conn{h.protocol, h.to, h.from}, Conn{h.protocol, h.from, h.to}
	if s := c.at[in]; s != nil {
		return s, inbound
	}
	if s := c.at[out]; s != nil {
		return s, outbound
	}
	in.Local, out.Local = noAddr, noAddr
	if s := c.at[in]; s != nil {
		return s, inbound
	}
	return c.at[out], outbound
}

var noAddr = Conn{}.Local

func (c *Capture) write(s *side, p *Packet, h *header, direction byte) {
	var say []string
	if !s.begun {
		say = append(say, s.about())
	}
	if h.flags&(flagFIN|flagRST) != 0 && !s.toldEnd && !s.Ended.IsZero() {
		say = append(say, s.end())
	}
	comment := strings.Join(say, "\n")
	if c.w.written+packetSize(len(p.Data))+int64(2*len(comment)+256) > c.cfg.MaxBytes {
		c.Full = true
	}
	if c.Full {
		return
	}
	if !s.begun {
		s.begun = true
		s.on = c.w.addInterface(fmt.Sprintf("flow %d %s", s.ID, s.name()), s.between(), s.about())
	} else if len(say) > 0 {
		s.toldEnd = true
	}
	c.w.packet(s.on, p.At, p.Length, p.Data, direction, comment)
	s.written++
	c.Packets++
}

func (s *side) name() string {
	if s.client {
		return "client"
	}
	return "member"
}

// between says what the two ends of the side are.
func (s *side) between() string {
	if s.client {
		return fmt.Sprintf("from %s to listener %s", s.Peer, s.Listener)
	}
	return fmt.Sprintf("from %s to %s", s.conn.Local, s.memberAt())
}

// memberAt says which member a flow has, and where that is. A group of one upstream, and its member, have the upstream's URL as names.
func (s *side) memberAt() string {
	if at := s.Upstream.String(); s.Member != at {
		return fmt.Sprintf("member %s/%s at %s", s.Group, s.Member, at)
	}
	return "member " + s.Member
}

// about says what the flow is, and where its other side is.
func (s *side) about() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flow %d, the side of its %s: client %s, listener %s", s.ID, s.name(), s.Client, s.Listener)
	if s.Peer != s.Client {
		fmt.Fprintf(&b, ", through the proxy %s", s.Peer)
	}
	if s.Route != "" {
		fmt.Fprintf(&b, ", route %s", s.Route)
	}
	if s.SNI != "" {
		fmt.Fprintf(&b, ", server name %s", s.SNI)
	}
	switch {
	case s.Upstream.Network == 0:
		fmt.Fprint(&b, ", no member")
	case s.flow.member == nil:
		fmt.Fprintf(&b, ", %s, whose side no packet is of", s.memberAt())
	default:
		fmt.Fprintf(&b, ", %s from %s", s.memberAt(), s.flow.member.conn.Local)
	}
	if s.client && s.ClientTLS || !s.client && s.UpstreamTLS {
		fmt.Fprint(&b, "; TLS of this side ends at the relay, and its keys are not in the file")
	}
	return b.String()
}

// end says how the flow has ended.
func (s *side) end() string {
	if s.Ended.IsZero() {
		return fmt.Sprintf("flow %d was open when the capture ended", s.ID)
	}
	text := fmt.Sprintf("flow %d ended: %s", s.ID, s.Cause)
	if s.Reason != "" {
		text += ", " + s.Reason
	}
	if s.Error != "" {
		text += ": " + s.Error
	}
	return text
}
