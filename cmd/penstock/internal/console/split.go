package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// SplitCmd shows how routes split their clients among groups, and changes it.
type SplitCmd struct {
	ClientFlags
	Route   routeArg    `arg:"" optional:"" name:"LISTENER[/ROUTE]" help:"A listener, and one of its routes; without it, the listener's own to. Without both, show all."`
	Weights []weightArg `arg:"" optional:"" name:"PART=WEIGHT" help:"The new weight of a part: of the group of this name, or of refuse. The other parts keep theirs."`
	Restore bool        `help:"All parts have the weights of the configuration again."`
}

// Help returns the text that penstock split --help prints below the flags.
func (SplitCmd) Help() string {
	return "The share of a part is its weight divided by the sum of all. A change is for new flows, takes effect at once, here and within a second on all other relays of the fleet whose configurations have the same weights, and lasts over reloads, upgrades and crashes, until the file changes the parts of the route or their weights; a restart loses it if there is no fleet, and penstock diff --yaml prints it for the file."
}

// routeArg is a LISTENER[/ROUTE] argument. Names have no slash.
type routeArg struct{ listener, route string }

func (a *routeArg) UnmarshalText(b []byte) error {
	listener, route, ok := strings.Cut(string(b), "/")
	if !ok {
		route = "default"
	}
	if listener == "" || route == "" || strings.ContainsAny(string(b), "=") {
		return fmt.Errorf("invalid route %s; allowed: LISTENER or LISTENER/ROUTE, as shown by penstock split", api.Quote(string(b)))
	}
	a.listener, a.route = listener, route
	return nil
}

// weightArg is a PART=WEIGHT argument. The name of a group may be a URL.
type weightArg struct {
	part   string
	weight int
}

func (a *weightArg) UnmarshalText(b []byte) error {
	text := string(b)
	i := strings.LastIndexByte(text, '=')
	n, err := strconv.Atoi(text[i+1:])
	if i < 1 || err != nil {
		return fmt.Errorf("invalid weight %s; allowed: PART=WEIGHT, such as green=10", api.Quote(text))
	}
	a.part, a.weight = text[:i], n
	return nil
}

// Validate checks the combination of arguments. Kong calls it.
func (c *SplitCmd) Validate() error {
	if c.Restore && (len(c.Weights) > 0 || c.Route.listener == "") {
		return errors.New("--restore: allowed: with LISTENER[/ROUTE], and without weights")
	}
	return nil
}

// Run executes the command. It prints the shares.
func (c *SplitCmd) Run(stdout, stderr *os.File) int {
	change := api.SplitChange{}
	for _, w := range c.Weights {
		if change.Weights == nil {
			change.Weights = api.PartWeights{}
		}
		change.Weights[w.part] = w.weight
	}
	if c.Restore {
		change.State = "file"
	}
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (l api.Listeners, err error) {
		if c.Restore || len(c.Weights) > 0 {
			r, err := client.SetSplit(ctx, c.Route.listener, c.Route.route, change)
			if err != nil {
				return l, err
			}
			if r.Error != "" {
				fmt.Fprintln(stderr, "penstock: "+printable(r.Error))
			}
		}
		if l, err = client.Listeners(ctx); err != nil {
			return l, err
		}
		return c.only(l)
	}, printSplits)
}

// only returns those listeners and routes that are split, and that the command is about.
func (c *SplitCmd) only(all api.Listeners) (api.Listeners, error) {
	l := api.Listeners{Listeners: splitRoutes(all.Listeners, c.Route)}
	if len(l.Listeners) == 0 && c.Route.listener != "" {
		return l, api.NotFound("route with parts", c.Route.listener+"/"+c.Route.route, "those that penstock split shows")
	}
	return l, nil
}

// splitRoutes returns the listeners with those of their routes that have parts; of one route, if only is not empty.
func splitRoutes(all []api.Listener, only routeArg) []api.Listener {
	list := []api.Listener{}
	for _, x := range all {
		var routes []api.Route
		for _, r := range x.Routes {
			if len(r.Parts) > 0 && (only.listener == "" || only == routeArg{x.Name, r.Name}) {
				routes = append(routes, r)
			}
		}
		if x.Routes = routes; len(routes) > 0 {
			list = append(list, x)
		}
	}
	return list
}

func printSplits(o out, l api.Listeners) {
	if len(l.Listeners) == 0 {
		fmt.Fprintln(o, "No route has several parts.")
		return
	}
	splitTable(l.Listeners).print(o)
}

// splitTable returns a table of the parts of all routes.
func splitTable(list []api.Listener) *table {
	t := newTable("~ROUTE", "~PART", ">SHARE", ">WEIGHT", ">FILE", "?~FLEET", ">FLOWS", ">TOTAL", ">REFUSED")
	for i := range list {
		for j := range list[i].Routes {
			r := &list[i].Routes[j]
			for k := range r.Parts {
				p := &r.Parts[k]
				file, all := "", ""
				if p.FileWeight != p.Weight {
					file = strconv.Itoa(p.FileWeight)
				}
				if r.FleetWeights {
					all = "yes"
				}
				t.add(list[i].Name+"/"+r.Name, p.Name, r.Share(k), strconv.Itoa(p.Weight), dash(file), all, count(p.Flows), count(p.Begun), count(p.Refused))
			}
		}
	}
	return t
}
