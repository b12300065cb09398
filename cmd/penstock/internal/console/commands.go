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

// Commands is the grammar of the commands, for embedding in that of the whole command line.
type Commands struct {
	Status  StatusCmd  `cmd:"" help:"Show the state of the daemon."`
	Top     TopCmd     `cmd:"" help:"Watch the daemon live."`
	Flows   FlowsCmd   `cmd:"" help:"List open flows."`
	Flow    FlowCmd    `cmd:"" help:"Show one flow, with what the kernel knows of its sockets."`
	Kill    KillCmd    `cmd:"" help:"End flows."`
	Groups  GroupsCmd  `cmd:"" help:"List groups and their members."`
	Drain   DrainCmd   `cmd:"" help:"Send no new flows to a member. Its open flows continue."`
	Disable DisableCmd `cmd:"" help:"Send no flows to a member, and end its open flows."`
	Enable  EnableCmd  `cmd:"" help:"Send flows to a member again."`
	Weight  WeightCmd  `cmd:"" help:"Change the weight of a member."`
	Restore RestoreCmd `cmd:"" help:"Undo drain, disable, enable, weight and members: the configuration decides again."`
	Members MembersCmd `cmd:"" help:"Add, remove and change members at run time."`
	Diff    DiffCmd    `cmd:"" help:"Show how the running daemon differs from its file."`
	Reload  ReloadCmd  `cmd:"" help:"Read the configuration file again and apply it."`
	Log     LogCmd     `cmd:"" help:"Show or change the level of the log."`
}
