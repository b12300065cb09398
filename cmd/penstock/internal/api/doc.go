// Package api is the vocabulary of the admin API: the JSON that package admin
// serves, as Go types, and a [Client] for it. It belongs to no side: commands,
// the dashboard and the server share it.
//
// Conventions: names are snake_case; times are RFC 3339; durations are seconds
// with a fraction; sizes are bytes; counters run since the daemon's start.
// "up" is from the client to the upstream, "down" is the way back. The ids of
// flows are strings, because they have 64 bits and JavaScript's numbers have 53.
// docs/api/openapi.yaml describes the same for everybody else.
package api
