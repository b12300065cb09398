package console

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// ListsCmd shows the lists of networks.
type ListsCmd struct{ ClientFlags }

// Run executes the command.
func (c *ListsCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Lists, error) { return client.Lists(ctx) }, printLists)
}

func printLists(o out, l api.Lists) {
	if len(l.Lists) == 0 {
		fmt.Fprintln(o, "The configuration has no lists.")
		return
	}
	t := newTable("~LIST", ">NETWORKS", ">HITS", ">BAD LINES", "~LOADED", "~SOURCE", "~ERROR")
	for i := range l.Lists {
		x := &l.Lists[i]
		loaded, bad := "never", ""
		if !x.Loaded.IsZero() {
			loaded = x.Loaded.Local().Format(time.DateTime)
		}
		if x.Saved {
			loaded += ", saved"
		}
		if x.BadLines > 0 {
			bad = strconv.Itoa(x.BadLines)
		}
		t.add(x.Name, count(int64(x.Networks)), count(x.Hits), dash(bad), loaded, printable(x.Source), dash(printable(x.Error)))
	}
	t.print(o)
}
