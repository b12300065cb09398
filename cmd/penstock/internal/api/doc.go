// Package api defines the JSON of the admin API as Go types, and a [Client]. The server in
// package admin, the commands in package console and the tests of the dashboard share it.
//
// Names are snake_case, times RFC 3339, durations seconds with a fraction, sizes bytes.
// Counters start at 0 with the daemon. "Up" is the direction from the client to the
// upstream, "down" the other one. The ids of flows are strings, because they have 64 bits
// and numbers in JavaScript have 53. docs/api/openapi.yaml describes the API for other
// clients.
package api
