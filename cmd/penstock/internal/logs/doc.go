// Package logs is where the daemon's own lines go: to a person or to a program, never faster than anybody can read, and
// without waiting for whoever reads them.
package logs
