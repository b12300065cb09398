package console

import "os"

// Exit codes, as for the rest of penstock.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed; one line on stderr says why
	exitUsage  = 2 // the command line is invalid
)

// Command is a parsed command. Run executes it and returns the exit code.
type Command interface {
	Run(stdout, stderr *os.File) int
}

// Commands is the grammar of the commands, for embedding in that of the whole command line. Those with the tag first
// are in the short list of --help.
type Commands struct {
	Status  StatusCmd  `cmd:"" first:"" group:"look" help:"Show the state of the daemon."`
	Top     TopCmd     `cmd:"" first:"" group:"look" help:"Watch the daemon live."`
	Flows   FlowsCmd   `cmd:"" first:"" group:"look" help:"List open flows."`
	Flow    FlowCmd    `cmd:"" group:"look" help:"Show one flow, with what the kernel knows of its sockets."`
	Capture CaptureCmd `cmd:"" group:"look" help:"Write the packets of flows into a file, both sides of each."`
	Ended   EndedCmd   `cmd:"" first:"" group:"look" help:"List the flows that ended last, with their causes."`
	Kill    KillCmd    `cmd:"" group:"change" help:"End flows."`
	Ban     BanCmd     `cmd:"" group:"change" help:"Refuse the clients of a network, on all listeners and relays of the fleet."`
	Unban   UnbanCmd   `cmd:"" group:"change" help:"Lift the ban of a network."`
	Bans    BansCmd    `cmd:"" group:"look" help:"List the networks that are banned."`
	Groups  GroupsCmd  `cmd:"" first:"" group:"look" help:"List groups and their members."`
	Lists   ListsCmd   `cmd:"" group:"look" help:"List the lists of networks: how many, hits, and errors."`
	Drain   DrainCmd   `cmd:"" first:"" group:"change" help:"Send no new flows to a member. Its open flows continue."`
	Disable DisableCmd `cmd:"" group:"change" help:"Send no flows to a member, and end its open flows."`
	Enable  EnableCmd  `cmd:"" group:"change" help:"Send flows to a member again."`
	Weight  WeightCmd  `cmd:"" group:"change" help:"Change the weight of a member."`
	Split   SplitCmd   `cmd:"" group:"change" help:"Show or change how routes split their clients among groups."`
	Restore RestoreCmd `cmd:"" group:"change" help:"Undo drain, disable, enable, weight and members: the configuration decides again."`
	Members MembersCmd `cmd:"" group:"change" help:"Add, remove and change members at run time."`
	Diff    DiffCmd    `cmd:"" group:"look" help:"Show how the running daemon differs from its file."`
	Reload  ReloadCmd  `cmd:"" first:"" group:"change" help:"Read the configuration file again and apply it."`
	Upgrade UpgradeCmd `cmd:"" group:"change" help:"Replace the running daemon by another binary, while its flows continue."`
	Fleet   FleetCmd   `cmd:"" group:"fleet" help:"Look at and change many relays at once."`
	Log     LogCmd     `cmd:"" group:"change" help:"Show or change the level of the log."`
}
