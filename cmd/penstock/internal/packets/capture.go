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
	sides  []*side         // in the order in which they were told
	fresh  []*side         // those that Uncovered has not looked at
	over   map[uint64]bool // open flows beyond MaxFlows
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

// side is one of the connections of a flow: that with its client, or one with a member.
type side struct {
	*flow
	conn   Conn
	client bool
	told   api.CaptureFlow // of a member: what was told with it; the flow may have gone on to another one since
	until  time.Time       // of a member: when the flow went on; zero: it has not, or nobody knows
	before *side           // that had the same addresses
	syn    bool            // of a member: the connection's SYN was seen, which has the number seq
	seq    uint32

	on                uint32 // the interface of the file
	begun, toldEnd    bool
	received, written int64
	device            [2]int
	last              [2]time.Time
}

// New returns a capture that writes to w.
func New(w io.Writer, cfg Config) *Capture {
	return &Capture{cfg: cfg, w: newWriter(w, cfg.Snap, cfg.Program, cfg.About), flows: map[uint64]*flow{}, at: map[Conn]*side{}, over: map[uint64]bool{}}
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
			c.skip(told)
			return
		}
		f = &flow{CaptureFlow: *told}
		c.flows[told.ID] = f
		if conn, ok := connOf(told.Local, told.Peer); ok && !told.Shared {
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
		if before := f.member; before != nil && conn.Protocol == TCP && told.Since.After(before.told.Since) { // of datagrams it is the flow's begin
			before.until = told.Since
		}
		f.member = &side{flow: f, conn: conn, told: *told}
		c.add(f.member)
	}
}

// skip counts a flow beyond MaxFlows, which may be told several times.
func (c *Capture) skip(told *api.CaptureFlow) {
	if !c.over[told.ID] {
		c.Skipped++
		c.over[told.ID] = true
	}
	if !told.Ended.IsZero() {
		delete(c.over, told.ID) // nothing is told of it any more
	}
}

func (c *Capture) add(s *side) {
	s.before = c.at[s.conn]
	if s.before != nil {
		s.before.before = nil
	}
	c.at[s.conn] = s
	c.sides = append(c.sides, s)
	c.fresh = append(c.fresh, s)
}

// ended returns when a side has ended; zero: it has not.
func (s *side) ended() time.Time {
	if !s.until.IsZero() {
		return s.until
	}
	return s.Ended
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

// Uncovered returns the filter for what was told since the last call and the given terms do not take.
func (c *Capture) Uncovered(terms []Term) (more []Term) {
	fresh := c.fresh
	c.fresh = nil
	for _, s := range fresh {
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
	c.queued += q.size()
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
	c.queued -= p.size()
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
	if b := s.before; b != nil && p.At.Before(b.ended()) {
		s = b
	}
	begins := h.flags&(flagSYN|flagACK) == flagSYN
	end := s.ended()
	switch {
	case !s.client && p.At.Before(s.told.Since.Add(-sinceSlack)):
		return false // of another flow, whose connection had the same addresses
	case !end.IsZero() && p.At.After(end) && h.protocol == UDP:
		return false
	case begins && (!end.IsZero() && p.At.After(end) || s.others(p, &h, direction)): // the addresses have a new connection
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

// others reports whether a SYN is of another connection of this host, with which the addresses of this one are used again. The end of
// a flow may not have been told: its worker is gone, or too many were to be told at once.
func (s *side) others(p *Packet, h *header, direction byte) bool {
	if s.client || direction != outbound {
		return false
	}
	if !s.syn && (s.received == 0 || p.At.Sub(s.told.Since) < Slack) {
		s.syn, s.seq = true, h.seq
	}
	return !s.syn || h.seq != s.seq // the same number: it is sent again
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
	return fmt.Sprintf("from %s to %s", s.conn.Local, memberAt(&s.told))
}

// memberAt says which member a flow has, and where that is. A group of one upstream, and its member, have the upstream's URL as names.
func memberAt(f *api.CaptureFlow) string {
	if at := f.Upstream.String(); f.Member != at {
		return fmt.Sprintf("member %s/%s at %s", f.Group, f.Member, at)
	}
	return "member " + f.Member
}

// about says what the flow is, and where its other side is.
func (s *side) about() string {
	var b strings.Builder
	to := s // the side with the member
	if s.client {
		to = s.flow.member
	}
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
	case to != nil:
		fmt.Fprintf(&b, ", %s from %s", memberAt(&to.told), to.conn.Local)
	case s.Upstream.Network == 0:
		fmt.Fprint(&b, ", no member")
	default:
		fmt.Fprintf(&b, ", %s, whose side no packet is of", memberAt(&s.CaptureFlow))
	}
	if s.Shared {
		fmt.Fprint(&b, "; the side of its client is left out, as other clients share the proxy's address")
	}
	if s.client && s.ClientTLS || !s.client && s.told.UpstreamTLS {
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
	if s.Reason != "" && s.Reason != s.Cause {
		text += ", " + s.Reason
	}
	if s.Error != "" {
		text += ": " + s.Error
	}
	return text
}
