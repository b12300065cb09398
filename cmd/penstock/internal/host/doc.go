// Package host is what the daemon asks of its own process and of the kernel that it runs on: limits, capabilities, the
// program's file and memory, signals, and the sockets that others have.
package host
