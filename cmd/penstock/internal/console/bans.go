package console

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// BanCmd bans a network.
type BanCmd struct {
	ClientFlags
	Network  string        `arg:"" name:"NETWORK" help:"An address or a network."`
	For      time.Duration `placeholder:"TIME" help:"How long, such as 4h. Default: until penstock unban."`
	Why      string        `placeholder:"TEXT" help:"Why, for those who look at penstock bans."`
	EndFlows bool          `help:"End the open flows of these clients, too."`
}

// Help returns the text that penstock ban --help prints below the flags.
func (BanCmd) Help() string {
	return "All listeners refuse new flows of the network, whatever allow says, at once, and those of all other relays of the fleet within a second. A ban lasts over reloads, upgrades and crashes, and with --state of the daemon over a stop. A network that is banned already gets the new end."
}

// Validate checks the flags. Kong calls it.
func (c *BanCmd) Validate() error { return notNegative("--for", c.For) }

// Run executes the command.
func (c *BanCmd) Run(stdout, stderr *os.File) int {
	n := api.NewBan{Network: c.Network, For: c.For.Seconds(), Why: c.Why, EndFlows: c.EndFlows}
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Ban, error) { return client.Ban(ctx, n) }, func(o out, b api.Ban) {
		fmt.Fprintf(o, "banned %s%s", b.Network, until(&b))
		if b.Fleet {
			fmt.Fprint(o, ", in the whole fleet")
		}
		if c.EndFlows {
			fmt.Fprintf(o, "; ended %s", plural(b.Ended, "flow"))
		}
		fmt.Fprintln(o)
		if b.Error != "" {
			fmt.Fprintln(stderr, "penstock: "+printable(b.Error))
		}
	})
}

func until(b *api.Ban) string {
	if b.Until.IsZero() {
		return ""
	}
	return " until " + b.Until.Local().Format(time.DateTime)
}

// UnbanCmd lifts the ban of a network.
type UnbanCmd struct {
	ClientFlags
	Network string `arg:"" name:"NETWORK" help:"An address or a network, as penstock bans shows it."`
}

// Run executes the command.
func (c *UnbanCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Ban, error) { return client.Unban(ctx, c.Network) }, func(o out, b api.Ban) {
		fmt.Fprintf(o, "%s is not banned any more\n", b.Network)
	})
}

// BansCmd shows the bans.
type BansCmd struct{ ClientFlags }

// Run executes the command.
func (c *BansCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Bans, error) { return client.Bans(ctx) }, printBans)
}

func printBans(o out, b api.Bans) {
	if len(b.Bans) == 0 {
		fmt.Fprintln(o, "Nobody is banned.")
		return
	}
	t := newTable("~NETWORK", "~SINCE", "~UNTIL", "~FLEET", "~BY", "~WHY")
	for i := range b.Bans {
		x := &b.Bans[i]
		end, all := "unban", "no"
		if !x.Until.IsZero() {
			end = x.Until.Local().Format(time.DateTime)
		}
		if x.Fleet {
			all = "yes"
		}
		t.add(x.Network.String(), x.At.Local().Format(time.DateTime), end, all, dash(printable(x.By)), dash(printable(x.Why)))
	}
	t.print(o)
}
