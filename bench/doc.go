// Package bench measures penstock beside its peers. The command relay does so
// for the daemon, the packages beside it for the library. README.md states method and limits.
package bench
