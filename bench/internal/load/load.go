//go:build linux

// Package load makes the traffic that relays are measured under: a generator on one side, a sink on
// the other, each meant to run in its own process. Both use raw sockets from one thread where that
// is cheapest, so that the machine is busy with the relay and not with the load.
package load

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Kind is the shape of a load.
type Kind string

const (
	Bulk       Kind = "bulk"       // one-way streams; the sink discards them, and answers the half-close with its count
	PingPong   Kind = "pingpong"   // each connection sends Size bytes and waits for the echo
	Connect    Kind = "connect"    // connect, send Size bytes, read the echo, close; Conns of them at a time
	Idle       Kind = "idle"       // connections that did one ping-pong and then nothing
	Settle     Kind = "settle"     // idle connections that a keeper begins to hold, and their end
	Flood      Kind = "udp"        // one-way UDP flows as fast as a window of datagrams allows; the sink reports what it got
	UDPPing    Kind = "udpping"    // each UDP flow sends Size bytes and waits for the echo
	UDPConnect Kind = "udpsession" // a new UDP flow, Size bytes and their echo, close; Conns of them at a time
)

// Spec is one load. Its text form is KIND, for bulk followed by the size of a write, then the
// number of connections: bulk1m, bulk16kx4, pingpong64, connect, idle10000, settle4500. A ping-pong with
// messages of another size than 64 bytes is pingpongSIZExCONNS: pingpong16kx64. UDP loads are
// udpSIZE[xFLOWS], udpgsoSIZE[xFLOWS], udpquicSIZE[xFLOWS], udppingFLOWS,
// udpsession[FLOWS].
type Spec struct {
	Kind  Kind
	Size  int // bytes per write or message
	Conns int
	QUIC  bool // UDP flood: its flows look like connections of QUIC
	Burst int  // UDP flood: datagrams that the sender hands to the kernel as one (GSO); 0 means each by itself
}

const (
	messageSize = 64 // size of a stream's message if the text does not give one
	// The generator and the sink each send a message from one thread that serves all connections:
	// it must fit into the buffers of the sockets in between. A single connection has a thread of its own in the sink, which
	// sends back what it has while the rest comes.
	maxMessage, maxLoneMessage = 64 << 10, 256 << 10
)

// UDP reports whether the load consists of datagrams.
func (s Spec) UDP() bool { return s.Kind == Flood || s.Kind == UDPPing || s.Kind == UDPConnect }

var (
	bulkForm  = regexp.MustCompile(`^bulk(\d+)([km]?)(?:x(\d+))?$`)
	sizedForm = regexp.MustCompile(`^pingpong(\d+)([km]?)x(\d+)$`)
	udpForm   = regexp.MustCompile(`^udp(gso|quic)?(\d+)(?:x(\d+))?$`)
	otherForm = regexp.MustCompile(`^(pingpong|connect|idle|settle|udpping|udpsession)(\d*)$`)
)

// Parse parses the text form of a load.
func Parse(s string) (Spec, error) {
	if m := bulkForm.FindStringSubmatch(s); m != nil {
		spec := Spec{Kind: Bulk, Size: bytesOf(m[1], m[2]), Conns: 1}
		if m[3] != "" {
			spec.Conns, _ = strconv.Atoi(m[3])
		}
		return spec, spec.check(s)
	}
	if m := sizedForm.FindStringSubmatch(s); m != nil {
		spec := Spec{Kind: PingPong, Size: bytesOf(m[1], m[2])}
		spec.Conns, _ = strconv.Atoi(m[3])
		if spec.Size > maxLoneMessage || spec.Size > maxMessage && spec.Conns > 1 {
			return spec, fmt.Errorf("load %q: want messages of at most %d bytes, or %d on one connection", s, maxMessage, maxLoneMessage)
		}
		return spec, spec.check(s)
	}
	if m := udpForm.FindStringSubmatch(s); m != nil {
		spec := Spec{Kind: Flood, Conns: 4}
		switch m[1] {
		case "gso":
			spec.Burst = floodBurst
		case "quic":
			spec.QUIC = true
		}
		spec.Size, _ = strconv.Atoi(m[2])
		if m[3] != "" {
			spec.Conns, _ = strconv.Atoi(m[3])
		}
		if least := spec.numberAt() + floodHead; spec.Size < least || spec.Size > 2000 {
			return spec, fmt.Errorf("load %q: want datagrams of %d to 2000 bytes", s, least)
		}
		return spec, spec.check(s)
	}
	if m := otherForm.FindStringSubmatch(s); m != nil {
		spec := Spec{Kind: Kind(m[1]), Size: messageSize}
		spec.Conns = map[Kind]int{PingPong: 64, Connect: 32, Idle: 10000, Settle: 4500, UDPPing: 64, UDPConnect: 32}[spec.Kind]
		if spec.UDP() {
			spec.Size = 200
		}
		if m[2] != "" {
			spec.Conns, _ = strconv.Atoi(m[2])
		}
		return spec, spec.check(s)
	}
	return Spec{}, fmt.Errorf("load %q: want bulkSIZE[xCONNS], pingpong[SIZEx]CONNS, connect[CONNS], idle[CONNS], settle[CONNS], udpSIZE[xFLOWS], udpgsoSIZE[xFLOWS], udpquicSIZE[xFLOWS], udppingFLOWS or udpsession[FLOWS], such as bulk16k, bulk1mx4, pingpong64", s)
}

func (s Spec) check(text string) error {
	if s.Size < 1 || s.Size > 16<<20 || s.Conns < 1 || s.Conns > 100000 {
		return fmt.Errorf("load %q: want a size of 1 to 16m and 1 to 100000 connections", text)
	}
	return nil
}

// bytesOf parses a number with an optional suffix k or m.
func bytesOf(number, unit string) int {
	n, _ := strconv.Atoi(number)
	switch unit {
	case "k":
		n <<= 10
	case "m":
		n <<= 20
	}
	return n
}

// String returns the text form, which Parse reads.
func (s Spec) String() string {
	switch {
	case s.Kind == Bulk || s.Kind == PingPong && s.Size != messageSize:
		return fmt.Sprintf("%s%dx%d", s.Kind, s.Size, s.Conns)
	case s.Kind == Flood && s.QUIC:
		return fmt.Sprintf("udpquic%dx%d", s.Size, s.Conns)
	case s.Kind == Flood && s.Burst > 0:
		return fmt.Sprintf("udpgso%dx%d", s.Size, s.Conns)
	case s.Kind == Flood:
		return fmt.Sprintf("udp%dx%d", s.Size, s.Conns)
	}
	return fmt.Sprintf("%s%d", s.Kind, s.Conns)
}

// Result holds what one run of a load measured between the end of its warm-up and the end of its
// window.
type Result struct {
	Conns     int           // connections of the load
	Ops       int64         // round trips, or connections; writes for a bulk load, datagrams that arrived for a UDP flood
	Bytes     int64         // sent into the relay
	Window    time.Duration // how long it took
	RelayCPU  time.Duration // user and system time of the relay's processes
	FirstCPU  time.Duration // the part of the first of them, which is the keeper if there is one
	LoadCPU   time.Duration // user and system time of the generator
	Others    time.Duration // CPU time of everything except relay, generator and sink
	P50, P99  time.Duration // of a round trip, or from connect to the echo
	Sent      int64         // all datagrams of a UDP load, including those of the warm-up
	Lost      int64         // those of Sent that never arrived, or never came back
	RSSBefore int64         // KB that the relay held before an idle load; what its processes share counts for each
	RSSAfter  int64         // KB that it held at the end of the window
	OnceKB    int64         // KB by which it grew under an idle load, without counting anything twice
	Kept      bool          // the relay has a keeper
	Settled   int64         // flows that it held at the end of the window
	CloseCPU  time.Duration // user and system time of the relay's processes when the connections of Settle ended

	// Of loads over TLS only.
	Resumed    int64         // handshakes of Ops that resumed
	Handshake  time.Duration // p50
	Negotiated string        // version, cipher suite, key exchange
}

// Config says where a generator sends and which processes it watches.
type Config struct {
	Addr   string        // the relay's listener, 127.0.0.1:port
	Relay  int           // the relay's first process; its descendants count too
	Sink   int           // the sink's process
	CPUs   string        // the CPUs that all processes are bound to; "" means all
	Warm   time.Duration // before the window
	Window time.Duration
	Verify bool // bulk only: check every byte of a short transfer and measure nothing

	// Settled returns how many flows the relay's keeper holds; nil means that there is no keeper.
	// The window of a load whose flows last begins when all are held.
	Settled func() (int64, error) `json:"-"`
}

// Run drives the load to its end.
func Run(spec Spec, cfg Config) (Result, error) {
	r, err := drive(spec, cfg)
	r.Conns = spec.Conns
	return r, err
}

func drive(spec Spec, cfg Config) (Result, error) {
	switch {
	case spec.Kind == Bulk && cfg.Verify:
		return verifyBulk(spec, cfg)
	case spec.Kind == Bulk:
		return runBulk(spec, cfg)
	case spec.Kind == Flood:
		return runFlood(spec, cfg)
	case spec.Kind == PingPong || spec.Kind == UDPPing:
		return runPingPong(spec, cfg)
	case spec.Kind == Connect || spec.Kind == UDPConnect:
		return runConnect(spec, cfg)
	case spec.Kind == Idle:
		return runIdle(spec, cfg)
	case spec.Kind == Settle:
		return runSettle(spec, cfg)
	}
	return Result{}, fmt.Errorf("unknown kind of load %q", spec.Kind)
}
