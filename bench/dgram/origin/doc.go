// Package origin has x/net's own BenchmarkUDP (internal/socket) for package
// dgram and for module xnet: the same names, sizes and steps, so that the two can
// stand in one table. bench/origins makes that table.
package origin
