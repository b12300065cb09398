package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/packets"
)

// CaptureCmd writes the packets of flows into a file.
type CaptureCmd struct {
	ClientFlags
	Flow     uint64        `placeholder:"ID" help:"This open flow."`
	Source   from          `placeholder:"CIDR" help:"The flows of clients in this network, or with this address: those that are open, and those that begin."`
	Listener string        `placeholder:"NAME" help:"Those of this listener."`
	For      time.Duration `default:"1m" placeholder:"TIME" help:"End after this long, at most an hour (${default})."`
	Bytes    size          `default:"104857600" placeholder:"SIZE" help:"End when the file has this size (100MiB)."`
	Flows    int           `default:"100" placeholder:"N" help:"Capture this many flows at most (${default})."`
	Snap     size          `default:"262144" placeholder:"SIZE" help:"Write this much of each packet, headers included (256KiB)."`
	Write    string        `short:"w" required:"" placeholder:"FILE" help:"The file, in the format pcapng; -: standard output."`
}

// Help returns the text that penstock capture --help prints below the flags.
func (CaptureCmd) Help() string {
	return "Both sides of a flow, between client and relay and between relay and member, come into one file, each as an interface of its own, with the flow's listener, route, member and end as comments. Packets are taken from a packet socket by this command, which needs root (CAP_NET_RAW) on the relay's host; the relay goes on as before. Ctrl-C ends the capture, and the file is complete. To look on: penstock capture --source 192.0.2.1 -w - | tshark -r -"
}

// Validate checks the flags. Kong calls it.
func (c *CaptureCmd) Validate() error {
	switch {
	case c.Flow == 0 && !c.Source.prefix.IsValid() && c.Listener == "":
		return errors.New("no flows selected; allowed: --flow ID, or --source, --listener or both")
	case c.Flow != 0 && (c.Source.prefix.IsValid() || c.Listener != ""):
		return errors.New("--flow with --source or --listener; allowed: either")
	case c.For < time.Second || c.For > (api.MaxCapture-captureGrace)*time.Second:
		return errors.New("--for: out of range; allowed: 1s to 59m")
	case c.Bytes < 4096:
		return errors.New("--bytes: too small; allowed: at least 4KiB")
	case c.Flows < 1 || c.Flows > 10_000:
		return errors.New("--flows: out of range; allowed: 1 to 10000")
	case c.Snap < 64 || c.Snap > 262144:
		return errors.New("--snap: out of range; allowed: 64 to 256KiB")
	}
	return nil
}

// captureGrace is how much longer than --for the daemon tells of flows, in seconds, and captureLast how long the end waits for it to tell of
// those that there are.
const (
	captureGrace = 60
	captureLast  = 5 * time.Second
)

// captured is the output of --json.
type captured struct {
	Flows        int   `json:"flows"`
	FlowsSkipped int64 `json:"flows_skipped,omitempty"` // beyond --flows, or not told
	Packets      int64 `json:"packets"`
	Bytes        int64 `json:"bytes"`                     // of the file
	Dropped      int64 `json:"packets_dropped,omitempty"` // by the kernel, or because too many waited

	// Flows of which one side has no packets of its own.
	UnixClients   int `json:"flows_of_unix_clients,omitempty"`
	UnixMembers   int `json:"flows_to_unix_members,omitempty"`
	SharedClients int `json:"flows_of_shared_sockets,omitempty"`
}

// hints say what is not in the file, and why it may be empty.
func (d *captured) hints(c *CaptureCmd) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if n := d.UnixClients; n > 0 {
		add("%s of clients at a Unix socket, which has no packets: only the member's side is in the file", plural(int64(n), "flow"))
	}
	if n := d.UnixMembers; n > 0 {
		add("%s to a member at a Unix socket, which has no packets: only the client's side is in the file", plural(int64(n), "flow"))
	}
	if n := d.SharedClients; n > 0 {
		add("%s of clients that share a socket of their proxy: only the member's side is in the file", plural(int64(n), "flow"))
	}
	switch {
	case d.Flows == 0 && c.Source.prefix.IsValid():
		add("nothing was captured: no such flow was open, and none began. --source is the client as penstock flows shows it; behind a proxy, the one that the PROXY header names")
	case d.Flows == 0:
		add("nothing was captured: no such flow was open, and none began; penstock flows shows those that are open")
	case d.Packets == 0 && d.UnixClients+d.SharedClients < d.Flows:
		add("no packets came. Either the flows were silent, or this is not the relay's host, or another network namespace than its own")
	case d.Packets == 0:
		add("no packets came of what is left of the flows")
	}
	return lines
}

// Run executes the command.
func (c *CaptureCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		if c.Write == "-" && newOut(stdout).width > 0 {
			return usageError{"-w -: standard output is a terminal; allowed: a file, or a pipe such as | tshark -r -"}
		}
		terms, err := c.terms(ctx, client)
		if err != nil {
			return err
		}
		socket, err := packets.Open(terms)
		if err != nil {
			return err
		}
		defer socket.Close()
		return c.capture(ctx, client, socket, terms, stdout, stderr)
	})
}

// terms returns the filter with which a capture begins: that of all packets which may be of flows that begin, as packets come before the
// daemon tells whose they are. Of a flow that is open nothing is known yet.
func (c *CaptureCmd) terms(ctx context.Context, client *api.Client) (terms []packets.Term, err error) {
	if c.Flow != 0 {
		return nil, nil
	}
	listeners, err := call(ctx, client.Listeners)
	if err != nil {
		return nil, err
	}
	known := false
	for _, l := range listeners.Listeners {
		if known = known || l.Name == c.Listener; c.Listener != "" && l.Name != c.Listener {
			continue
		}
		from := packets.End{Network: c.Source.prefix}
		if l.ProxyProtocol {
			from = packets.End{} // the proxies, whoever these are
		}
		if at, ok := endOf(l.Address); ok {
			terms = append(terms, packets.Term{A: from, B: at})
		}
	}
	if c.Listener != "" && !known {
		return nil, (&EndedFilter{Listener: c.Listener}).checkNames(ctx, client)
	}
	groups, err := call(ctx, client.Groups)
	if err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, m := range g.Members {
			if at, ok := endOf(m.Address); ok {
				terms = append(terms, packets.Term{A: at})
			}
		}
	}
	return terms, nil
}

// endOf returns where a listener or a member is; false: no packet goes there.
func endOf(url string) (e packets.End, ok bool) {
	var a api.Addr
	if a.UnmarshalText([]byte(url)) == nil {
		return packets.At(a.AddrPort), a.AddrPort.IsValid()
	}
	return e, !strings.HasPrefix(url, "unix") // a range of ports, or a name: anywhere
}

// capture writes the file.
func (c *CaptureCmd) capture(ctx context.Context, client *api.Client, socket *packets.Socket, terms []packets.Term, stdout, stderr *os.File) error {
	n := api.NewCapture{Flow: c.Flow, Listener: c.Listener, For: c.For.Seconds() + captureGrace}
	if c.Source.prefix.IsValid() {
		n.Source = c.Source.prefix.String()
	}
	told, cancel := context.WithCancel(context.Background()) // ctx ends with Ctrl-C, after which what was told still counts
	defer cancel()
	lines, ended := make(chan api.CaptureLine, 1024), make(chan error, 1)
	go func() { ended <- tellFlows(told, client, n, lines) }()
	var first api.CaptureLine
	select {
	case first = <-lines:
	case err := <-ended:
		if err == nil {
			err = errors.New("the daemon ended the capture before it began")
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	file := io.Writer(stdout)
	if c.Write != "-" {
		f, err := createPrivate(c.Write)
		if err != nil {
			return err
		}
		defer f.Close()
		file = f
	}
	out := bufio.NewWriterSize(file, 64<<10)
	k := &capturing{CaptureCmd: c, socket: socket, terms: terms, lines: lines, stderr: stderr,
		Capture: packets.New(out, packets.Config{Snap: int(c.Snap), MaxBytes: int64(c.Bytes), MaxFlows: c.Flows, Program: "penstock capture", About: c.about()})}
	k.line(&first)
	err := k.loop(ctx, out, ended)
	dropped := socket.Dropped()
	err = errors.Join(err, k.Close(time.Now(), dropped), out.Flush())
	if f, ok := file.(*os.File); ok && c.Write != "-" {
		err = errors.Join(err, f.Close())
	}
	done := captured{Flows: k.Capture.Flows(), FlowsSkipped: k.Skipped + k.lost, Packets: k.Packets, Bytes: k.Written(), Dropped: dropped + k.Overflow,
		UnixClients: len(k.unixClients), UnixMembers: len(k.unixMembers), SharedClients: len(k.shared)}
	defer func() {
		for _, line := range done.hints(c) {
			fmt.Fprintln(stderr, line)
		}
	}()
	if c.JSON && c.Write != "-" {
		return errors.Join(err, printJSON(stdout, done))
	}
	fmt.Fprintf(stderr, "%s of %s, %s", plural(done.Packets, "packet"), plural(int64(done.Flows), "flow"), volume(float64(done.Bytes)))
	if done.Dropped > 0 {
		fmt.Fprintf(stderr, "; %s dropped: a narrower filter, or --snap, has fewer", plural(done.Dropped, "packet"))
	}
	if done.FlowsSkipped > 0 {
		fmt.Fprintf(stderr, "; %s left out", plural(done.FlowsSkipped, "further flow"))
	}
	fmt.Fprintln(stderr)
	return err
}

// createPrivate creates a file in the place of the one that there is, for payload, which is nobody else's matter: nobody else may read it,
// and root does not write where somebody else's link leads.
func createPrivate(name string) (*os.File, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() == os.ModeSymlink:
		return nil, usageError{"-w " + name + ": a symbolic link; allowed: the file itself, or - for standard output"}
	case !info.Mode().IsRegular(): // a pipe, a device
		return os.OpenFile(name, os.O_WRONLY, 0)
	default:
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// captureRetry is how long a command waits before it asks again, where the worker that told of flows is gone, and captureRetries how often
// it asks in vain.
const (
	captureRetry   = 300 * time.Millisecond
	captureRetries = 10
)

// tellFlows sends what the daemon tells of flows, also the next worker's. It returns when nobody tells any more, or the one flow has ended.
func tellFlows(ctx context.Context, client *api.Client, n api.NewCapture, lines chan<- api.CaptureLine) error {
	told, over := false, false
	for vain := 0; ; vain++ {
		err := client.Capture(ctx, n, func(l *api.CaptureLine) error {
			told, vain = true, 0
			over = over || l.Flow != nil && l.Flow.ID == n.Flow && !l.Flow.Ended.IsZero()
			select {
			case lines <- *l:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if over || ctx.Err() != nil || err != nil && (!told || vain == captureRetries) {
			return err
		}
		select { // the worker that told is gone, and the next one may not have the flow yet
		case <-time.After(captureRetry):
		case <-ctx.Done():
		}
	}
}

// about says what was asked for.
func (c *CaptureCmd) about() string {
	text := fmt.Sprintf("penstock capture of flow %d", c.Flow)
	if c.Flow == 0 {
		text = "penstock capture of flows"
		if c.Source.prefix != (netip.Prefix{}) {
			text += " of " + c.Source.prefix.String()
		}
		if c.Listener != "" {
			text += " at listener " + c.Listener
		}
	}
	return text + fmt.Sprintf(", for %v, %d bytes and %d flows at most", c.For, int64(c.Bytes), c.Flows)
}

// capturing is a capture under way.
type capturing struct {
	*CaptureCmd
	*packets.Capture
	socket  *packets.Socket
	terms   []packets.Term
	lines   chan api.CaptureLine
	begun   bool
	busy    bool      // there are more packets
	alone   bool      // nobody tells of flows any more
	at      time.Time // everything before was told
	through time.Time
	lost    int64 // flows that the daemon could not tell
	stderr  *os.File

	unixClients, unixMembers, shared map[uint64]bool // flows of which one side has no packets of its own
}

// missing notes which sides of a flow have no packets of their own.
func (k *capturing) missing(f *api.CaptureFlow) {
	for _, m := range []struct {
		to  *map[uint64]bool
		yes bool
	}{
		{&k.unixClients, strings.HasPrefix(f.Peer.Network.String(), "unix")},
		{&k.unixMembers, strings.HasPrefix(f.Upstream.Network.String(), "unix")},
		{&k.shared, f.Shared},
	} {
		if m.yes && *m.to == nil {
			*m.to = map[uint64]bool{}
		}
		if m.yes {
			(*m.to)[f.ID] = true
		}
	}
}

// line takes a line of the daemon.
func (k *capturing) line(l *api.CaptureLine) {
	k.lost = max(k.lost, l.Dropped)
	if l.At.After(k.at) {
		k.at, k.through = l.At, l.Through
	}
	if !l.At.IsZero() && !k.begun {
		k.begun = true
		fmt.Fprintf(k.stderr, "capturing; %s open\n", plural(int64(k.Open()), "flow"))
	}
	if l.Flow == nil {
		return
	}
	k.Tell(l.Flow)
	k.missing(l.Flow)
	if more := k.Uncovered(k.terms); len(more) > 0 {
		k.terms = packets.Join(k.terms, more)
		if err := k.socket.Filter(k.terms); err != nil {
			fmt.Fprintln(k.stderr, "penstock:", err)
		}
	}
}

// loop takes packets until the capture ends.
func (k *capturing) loop(ctx context.Context, out *bufio.Writer, ended chan error) error {
	end := time.Now().Add(k.For)
	for ctx.Err() == nil && time.Now().Before(end) && !k.over() {
		if err := k.turn(ended); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	// What has come is in the file, whose ever it is.
	end = time.Now()
	for (k.busy || !k.at.After(end) && !k.alone) && !k.Full && time.Since(end) < captureLast {
		if err := k.turn(ended); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether the file is full, or all flows that the capture is about have ended, and their last packets have come, or nobody
// tells of flows any more and none is open.
func (k *capturing) over() bool {
	all := (k.Flow != 0 || k.Capture.Flows() == k.CaptureCmd.Flows) && k.Capture.Flows() > 0 && k.Open() == 0
	return k.Full || k.Err() != nil || k.alone && (k.Flow != 0 || k.Open() == 0) || all && time.Since(k.LastEnd()) > packets.Slack
}

// turnWait is how long a turn waits for packets, and turnPackets bounds those that it takes.
const (
	turnWait    = 50 * time.Millisecond
	turnPackets = 256
)

// turn takes what there is of lines and packets, and waits for packets.
func (k *capturing) turn(ended chan error) error {
	for more := true; more; {
		select {
		case l := <-k.lines:
			k.line(&l)
		case err := <-ended:
			switch k.alone = true; {
			case k.Flow == 0 && k.Open() == 0:
				fmt.Fprintf(k.stderr, "penstock: the daemon tells of flows no longer: %s\n", k.explain(err))
			case k.Flow == 0:
				fmt.Fprintf(k.stderr, "penstock: the daemon tells of flows no longer, and only those that it has told of are captured: %s\n", k.explain(err))
			case k.Open() > 0:
				fmt.Fprintln(k.stderr, "penstock: the flow has ended while nobody could tell why")
			}
		default:
			more = false
		}
	}
	wait := turnWait
	k.busy = true
	for range turnPackets {
		p, ok, err := k.socket.Read(wait)
		if err != nil {
			return err
		}
		if !ok {
			k.busy = false
			break
		}
		k.Take(&p)
		wait = 0
	}
	if k.alone {
		k.through = time.Now()
	}
	k.Look(k.through)
	return nil
}
