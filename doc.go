// Package penstock is the root of a library that moves bytes between Linux sockets with as few
// copies, allocations and system calls as the kernel allows. It contains no code; import the
// package that fits.
//
// For streams, between TCP and Unix sockets in any combination:
//
//   - [github.com/penstock/penstock/splice] is for servers with a goroutine per connection. It is
//     like io.Copy, but with both directions, half-close, idle timeouts and byte counts, and
//     without copying where the kernel allows it.
//   - [github.com/penstock/penstock/relay] is for many flows, including idle ones, that should
//     cost neither a goroutine nor a buffer each. It accepts and connects, or takes over two
//     connections that a program already has.
//   - [github.com/penstock/penstock/clienthello] reads the server name that a TLS client asks
//     for, to choose an upstream without terminating TLS.
//   - [github.com/penstock/penstock/quichello] reads the same from the first datagrams of a QUIC
//     client.
//
// For datagrams:
//
//   - [github.com/penstock/penstock/dgram] reads and writes batches on a UDP socket, with GSO and
//     GRO, for QUIC, DNS, VPNs and telemetry.
//
// For memory:
//
//   - [github.com/penstock/penstock/pool] pools objects, with a bound and a hook for each object
//     that leaves, and byte buffers by size.
//
// From version 1.0 on, the APIs of pool, dgram, datapath (how bytes were moved, in the words of splice
// and relay), splice, clienthello and relay only grow. Those of the other packages may change, as their
// documentation says: quichello, keeper, sandbox, xnet, and hold, overload and stats below relay.
//
// The packages depend only on the standard library and golang.org/x/sys. They log nothing, read no
// environment variables, and run no code on import. They are written for Linux; on other systems,
// except Plan 9, they compile, and whatever needs Linux returns errors.ErrUnsupported or, in
// package splice, copies.
package penstock
