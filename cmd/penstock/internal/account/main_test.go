package account

import (
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay"
)

func TestMain(m *testing.M) {
	if os.Getenv(countingChild) != "" {
		countForever()
	}
	testnet.Main(m)
}

// patience bounds every wait for something that is about to happen.
const patience = testnet.Patience

// entry is a flow with a value in every field.
func entry() *Entry {
	return &Entry{
		Record: relay.Record{
			ID:       1<<56 | 7,
			Client:   tcp("192.0.2.1:1000"),
			Upstream: relay.Addr{Network: relay.Unix, Path: "/run/app.sock"},
			Peer:     tcp("[2001:db8::1]:443"),
			Attempts: 3,
			Up:       relay.Transfer{Read: 10, Written: 10, Datagrams: 4, DatagramsDropped: 1, Path: datapath.Copy, Why: datapath.WhySmall},
			Down:     relay.Transfer{Read: 30, Written: 20, Datagrams: 5, Spliced: 20, Path: datapath.Splice},
			Start:    time.Date(2026, 11, 21, 9, 0, 0, 123456789, time.FixedZone("", 3600)),
			Connect:  1500 * time.Microsecond,
			Queued:   time.Second, FirstByte: 25 * time.Millisecond,
			Duration: 61*time.Second + 20*time.Millisecond,
			Cause:    relay.CauseUpstreamReset,
			Err:      errors.New(`read: "reset"`),
		},
		ListenerName: "https", Route: "api", Group: "app", Member: "app-1",
		Reason: spec.ReasonKilled,
		Local:  tcp("192.0.2.9:443"),
		SNI:    "example.org", ALPN: "h2,http/1.1",
	}
}

func tcp(s string) relay.Addr {
	return relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(s)}
}

func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
