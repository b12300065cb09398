package app

import (
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/console"
	"github.com/penstock/penstock/cmd/penstock/internal/doctor"
	"github.com/penstock/penstock/cmd/penstock/internal/offline"
)

// commands is the grammar of the command line. Commands with the tag first are those of the first week, which --help shows.
type commands struct {
	relayGrammar
	runGrammar
	Check   offline.Check   `cmd:"" first:"" group:"config" help:"Check a configuration, and show what it would change."`
	Explain offline.Explain `cmd:"" first:"" group:"config" help:"Explain how a connection would be routed, and why."`
	Schema  offline.Schema  `cmd:"" group:"config" help:"Print the JSON Schema of configurations, for editors."`
	Convert offline.Convert `cmd:"" group:"config" help:"Convert a configuration of HAProxy or nginx."`

	Publish  offline.Publish  `cmd:"" group:"fleet" help:"Give all relays of a fleet a configuration, by etcd, or some of them first."`
	Rollback offline.Rollback `cmd:"" group:"fleet" help:"Give them an earlier one again."`
	History  offline.History  `cmd:"" group:"fleet" help:"Show the versions of a fleet's configuration, and how they differ."`

	Manual offline.Manual `cmd:"" hidden:"" help:"Write the manual pages."`

	console.Commands

	Doctor     doctor.Cmd         `cmd:"" first:"" group:"other" help:"Examine this host: what is missing, what that costs, and how to fix it."`
	Completion offline.Completion `cmd:"" group:"other" help:"Print the completion script of a shell."`
	Version    versionCmd         `cmd:"" group:"other" help:"Print the version."`
}

// relayGrammar and runGrammar are the parts that a daemon needs; see grammar.
type (
	relayGrammar struct {
		Relay relayCmd `cmd:"" first:"" group:"run" help:"Relay the clients of one listener to upstreams in turn."`
	}
	runGrammar struct {
		Run runCmd `cmd:"" first:"" group:"run" help:"Run the daemon with a configuration file."`
	}
)

// grammarFor returns the part of the grammar that a command line needs. Kong allocates 2 MB for all of it, which a process that
// only runs a daemon should not begin with.
func (c *commands) grammarFor(args []string) any {
	switch args[0] {
	case "relay":
		return &c.relayGrammar
	case "run":
		return &c.runGrammar
	}
	return c
}

// helpGroups are the headings of penstock --help and penstock help --all, in order.
var helpGroups = []kong.Group{
	{Key: "run", Title: "Run a relay:"},
	{Key: "config", Title: "Work on a configuration:"},
	{Key: "look", Title: "Look at a running daemon:"},
	{Key: "change", Title: "Change a running daemon:"},
	{Key: "fleet", Title: "Operate many relays:"},
	{Key: "other", Title: "Other commands:"},
}

type versionCmd struct{}

// relayCmd is the command relay. Kong fills it.
type relayCmd struct {
	Listen    cli.Listen     `arg:"" name:"LISTEN" help:"Where to listen: tcp://HOST:PORT or udp://HOST:PORT (no HOST: all addresses), unix:///PATH, unix:@NAME, unixgram:///PATH, unixgram:@NAME."`
	Upstreams []cli.Upstream `arg:"" name:"UPSTREAM" help:"Where to connect, the same way, or echo:, discard:. Streams go to streams, datagrams to datagrams. Several take clients in turn."`

	ConnectTimeout    cli.Timeout  `default:"5s" placeholder:"TIME" help:"How long one upstream may take to connect (${default})."`
	IdleTimeout       *cli.Timeout `placeholder:"TIME" help:"End a flow that has moved nothing for this long (0: never; default: never for streams, 60s for datagrams)."`
	HalfClosedTimeout cli.Timeout  `default:"60s" placeholder:"TIME" help:"End a flow that one side has closed and the other has left idle for this long (${default}; 0: never)."`
	DrainTimeout      cli.Timeout  `default:"30s" placeholder:"TIME" help:"How long flows may continue after the first signal (${default}; 0: end them at once)."`

	KeepAlive   cli.Timeout `default:"0" placeholder:"TIME" help:"Probe a TCP peer that has been silent for this long (0: no probes)."`
	UserTimeout cli.Timeout `default:"0" placeholder:"TIME" help:"End a TCP connection whose data stays unacknowledged for this long (0: the kernel's default)."`
	Nagle       bool        `help:"Enable Nagle's algorithm: TCP waits for more data before it sends a small segment."`
	RecvBuffer  cli.Size    `default:"0" placeholder:"SIZE" help:"SO_RCVBUF of every socket (0: tuned by the kernel)."`
	SendBuffer  cli.Size    `default:"0" placeholder:"SIZE" help:"SO_SNDBUF of every socket (0: tuned by the kernel)."`
	Backlog     cli.Count   `default:"0" placeholder:"N" help:"Maximum number of clients waiting to be accepted (0: the kernel's maximum)."`
	SocketMode  cli.Mode    `default:"0" placeholder:"MODE" help:"Permissions of a Unix listener's path, octal (0: from the umask)."`

	Replies     cli.Count    `default:"0" placeholder:"N" help:"End a datagram flow once each of the client's datagrams has had this many replies (0: never; DNS: 1)."`
	Unreachable string       `enum:"next,end,ignore" default:"next" placeholder:"WHAT" help:"What an ICMP error does to a datagram flow: next (upstream), end or ignore (${default})."`
	Source      []cli.Source `placeholder:"ADDRESS" help:"Send datagrams to upstreams from this address; several are used in turn, each with its own range of ports."`
	MaxFlows    cli.Count    `default:"0" placeholder:"N" help:"Maximum number of datagram flows; beyond it the least useful one is ended (0: three quarters of the descriptor limit)."`
	MaxNewFlows cli.Count    `default:"0" placeholder:"N" help:"Maximum number of new datagram flows per second and loop (0: 16384)."`
	NoGSO       bool         `name:"no-gso" help:"Send datagrams one at a time."`
	NoGRO       bool         `name:"no-gro" help:"Receive datagrams one at a time."`

	Loops    cli.Count `default:"0" placeholder:"N" help:"Event loops (0: one per CPU)."`
	Pipes    cli.Count `default:"0" placeholder:"N" help:"Maximum number of pipes for splicing (0: the engine's default)."`
	NoSplice bool      `help:"Never splice; copy all data."`
	Keep     bool      `help:"Run a second, small process that keeps flows when this one dies or is upgraded (SIGUSR2)."`

	LogFormat string `enum:"auto,text,json" default:"auto" placeholder:"FORMAT" help:"text, json, or auto: text on a terminal, JSON otherwise."`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"debug, info, warn or error (${default})."`
	Sandbox   string `enum:"on,log,off" default:"on" placeholder:"MODE" help:"on: the process gives up what it does not need, as far as the kernel can; log: the kernel only logs system calls that would be refused; off: nothing (${default}). See docs/sandbox.md."`
	LogFlows  string `enum:"none,failed,all" default:"failed" placeholder:"WHICH" help:"Which flows get a line when they end: none, failed or all (${default})."`
}

// Help returns the text that penstock relay --help prints below the flags.
func (relayCmd) Help() string {
	return "The first SIGINT or SIGTERM stops listening and lets flows finish; the second ends them all at once.\n\n" + cli.ExitCodeHelp
}

// Validate is called by kong. It checks what depends on more than one flag.
func (c *relayCmd) Validate() error {
	if c.ConnectTimeout == 0 {
		return errors.New("--connect-timeout: connecting must have a limit; allowed: more than 0")
	}
	for _, u := range c.Upstreams {
		switch {
		case c.Listen.Kind.Datagrams() && !u.Kind.Datagrams():
			return fmt.Errorf("%q: a stream upstream behind a datagram listener; allowed: echo:, discard:, udp://HOST:PORT, unixgram:///PATH or unixgram:@NAME", u.String())
		case u.Ports() > 1 && u.Ports() != c.Listen.Ports():
			return fmt.Errorf("%q: %d ports behind a listener with %d; allowed: as many ports as the listener, or one", u.String(), u.Ports(), c.Listen.Ports())
		case c.Listen.Kind.Streams() && !u.Kind.Streams():
			return fmt.Errorf("%q: a datagram upstream behind a stream listener; allowed: echo:, discard:, tcp://HOST:PORT, unix:///PATH or unix:@NAME", u.String())
		}
	}
	return nil
}

// Main runs the command line args, without the program's name, and returns the
// exit code. An invalid command line is reported in one line on stderr.
func Main(args []string, stdout, stderr *os.File) int {
	var c commands
	// By default kong exits after --help; here it only sets helped.
	helped := false
	args, all := translateHabits(args)
	parser, err := kong.New(c.grammarFor(args), kong.Name("penstock"),
		kong.Description("A layer-4 relay for TCP, UDP and Unix sockets. penstock help COMMAND is penstock COMMAND --help; penstock --version prints the version.\n\n"+cli.ExitCodeHelp),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }),
		kong.ExplicitGroups(helpGroups), kong.Help(helpPrinter(all)), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		fmt.Fprintln(stderr, "penstock:", err)
		return cli.ExitFailed
	}
	ctx, err := parser.Parse(args)
	if helped {
		return cli.ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "penstock: "+usageMessage(err))
		return cli.ExitUsage
	}
	if ask, ok := ctx.Selected().Target.Addr().Interface().(console.Command); ok {
		return ask.Run(stdout, stderr)
	}
	if command, ok := ctx.Selected().Target.Addr().Interface().(offline.Command); ok {
		return command.Run(offline.Call{Stdout: stdout, Stderr: stderr, Version: version(), Grammar: parser.Model})
	}
	switch ctx.Selected().Name {
	case "relay":
		return c.Relay.run(stderr)
	case "run":
		return c.Run.run(stderr)
	}
	printVersion(stdout)
	return cli.ExitOK
}
