// Package fleettest belongs to the module of the servers that the daemon's tests run against: real
// ones, whose dependencies neither the daemon nor its tests may have. Program fleetservers runs them,
// and package cmd/penstock/internal/testfleet builds and starts it.
package fleettest
