// Package bench compares penstock with its peers. The command relay does so for the daemon, the
// other packages for the library. README.md describes the method and its limits.
package bench
