// Package origin runs x/net's own BenchmarkUDP (internal/socket) with package dgram and module
// xnet: with the same names, sizes and steps, so that one table can show both. bench/origins makes
// that table.
package origin
