// Package testattack tries what a process in a sandbox must not be able to do. It is for tests only.
//
// Each attempt is a system call, or a few, made on the calling thread, and does no harm where it succeeds: what cannot be undone is
// tried with arguments that the kernel refuses, with another error, after it has decided that the caller may.
package testattack

// Target is what attempts are made on.
type Target struct {
	PID      int    // another process, of no importance, which would be allowed to be traced if there were no sandbox
	File     string // a file that everybody may read and write, and the policy does not name
	Folder   string // a folder where everybody may write, and the policy does not name
	Port     int    // a TCP port of 127.0.0.1 where somebody listens, and the policy does not name
	Abstract string // an abstract Unix socket of another process that accepts streams, without the zero byte
}

// Result is what an attempt came to.
type Result struct {
	Name string
	// Errno is the error number; 0: it succeeded.
	Errno int
	Text  string
	// Refused reports that it is one of the errors that a sandbox answers with.
	Refused bool
}
