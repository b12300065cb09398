package console

import "os"

// Exit codes, as for the rest of penstock.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done; one line on stderr says why
	exitUsage  = 2 // the command line is wrong
)

// Command is what kong has filled in and selected. Run blocks until the command
// has done its work, and returns the exit code.
type Command interface {
	Run(stdout, stderr *os.File) int
}

// Commands is the grammar, to be embedded in that of the whole command line.
type Commands struct {
	Status  StatusCmd  `cmd:"" help:"Show how a running daemon is."`
	Top     TopCmd     `cmd:"" help:"Watch a running daemon."`
	Flows   FlowsCmd   `cmd:"" help:"List open flows."`
	Flow    FlowCmd    `cmd:"" help:"Show one flow, with what the kernel knows of its sockets."`
	Kill    KillCmd    `cmd:"" help:"End flows."`
	Groups  GroupsCmd  `cmd:"" help:"List groups and their members."`
	Drain   DrainCmd   `cmd:"" help:"Let a member take no new flows; those that it has go on."`
	Disable DisableCmd `cmd:"" help:"Let a member take no flows, and end those that it has."`
	Enable  EnableCmd  `cmd:"" help:"Let a member take flows."`
	Weight  WeightCmd  `cmd:"" help:"Change the weight of a member."`
	Restore RestoreCmd `cmd:"" help:"Give a member back to what the configuration says of it."`
	Reload  ReloadCmd  `cmd:"" help:"Read the configuration again and put it in force."`
	Log     LogCmd     `cmd:"" help:"Show or change the level of the log."`
}
