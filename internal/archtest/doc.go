// Package archtest holds the architecture of the repository as tests: who may
// import whom and why, where the door to the kernel is, and how long a file may
// grow. It reads the source of every module, whatever the platform, and needs
// no go command.
//
// The table in table_test.go is not edited to get a test green. A new edge is a
// decision: it comes with its reason, in a commit that says so.
package archtest
