// Package admin is where operators ask: an HTTP API with JSON, metrics for
// Prometheus, profiles, and the files of the dashboard, on a Unix socket or on
// loopback TCP.
//
// It knows nothing of engine and stations: package app gives it a [Source]. What
// it says in JSON is package api, and docs/api/openapi.yaml for everybody else.
//
// Who may ask: on a Unix socket everybody whom the file's mode lets in, for
// everything. On TCP, which is loopback only, who shows the token may do
// everything, who shows the read token may read, and all others get /healthz and
// the dashboard's files, which tell nothing. On both, a request whose Host is not a loopback
// name is refused (DNS rebinding), and so is a request that a page of another
// origin makes; there is no CORS and no cookie.
//
// What a client can take is bounded: headers, bodies, connections, time, listings
// that run at once, and streams, which drop a reader that is too slow. A
// listing is written while it is read from the engine, slice by slice.
package admin
