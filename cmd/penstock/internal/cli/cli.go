// Package cli is what commands share: exit codes, and flags and arguments, each of which validates itself and says what is allowed.
package cli

// Exit codes. docs/commands.md explains them to operators.
const (
	ExitOK       = 0 // every flow has ended
	ExitFailed   = 1 // could not start
	ExitUsage    = 2 // the command line is wrong
	ExitCut      = 3 // the drain deadline passed and the remaining flows were ended
	ExitAtOnce   = 4 // a second signal ended the remaining flows
	ExitCodeHelp = `Exit codes: 0 success, every flow has ended; 1 the daemon could not start; 2 invalid command line or configuration; ` +
		`3 the drain deadline passed and the remaining flows were ended; 4 a second signal ended them.`
)
