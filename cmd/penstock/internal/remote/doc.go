// Package remote is what the clients of control planes and registries share: HTTP with TLS whose files
// are read again when they change, credentials from files, answers of bounded size, and back-off.
//
// Nothing here runs in the background. A Client holds idle connections, which Close closes.
package remote
