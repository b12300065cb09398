// Package admin serves operators: an HTTP API with JSON, metrics for Prometheus, profiles,
// and the files of the dashboard, on a Unix socket or on loopback TCP.
//
// It does not depend on the engine or the rest of the daemon, but answers from a [Source]
// that package app provides. Package api has the types of its JSON, and
// docs/api/openapi.yaml describes them for other clients.
//
// Access: on a Unix socket the mode of the file decides, and every client may do
// everything. On TCP, which is limited to loopback addresses, a client with the token may
// do everything and a client with the read token may read; others get /healthz and the
// files of the dashboard, which contain no data. In both cases a request is refused if its
// Host is not a loopback name (DNS rebinding) or if a page of another origin made it. There
// is no CORS and there are no cookies.
//
// Everything that a client can use is bounded: headers, bodies, connections, time,
// concurrent listings, and streams, which drop a reader that is too slow. A listing is
// written while it is read from the engine, slice by slice.
package admin
