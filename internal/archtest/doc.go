// Package archtest checks the architecture of the repository: which packages may import which
// others and why, which of them may make system calls, how long files may be, and which words are
// used. It reads the source of every module, for every platform, and does not need the go command.
//
// Do not edit the table in table_test.go just to make a test pass. A new edge is a decision: it
// comes with a reason, in a commit that explains it.
package archtest
