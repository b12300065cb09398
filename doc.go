// Package penstock is the root of a library that moves bytes between Linux
// sockets with the fewest copies, allocations and system calls that the kernel
// allows. It holds no code of its own; take the package that fits the need.
//
// Streams, TCP and Unix sockets in any pairing:
//
//   - a server with a goroutine for each connection, which wants io.Copy with
//     both directions, half-close, idle timeout and counts, and no copy where the
//     kernel can do without: [github.com/penstock/penstock/splice];
//   - many flows, idle ones too, that should cost neither a goroutine nor a
//     buffer each: [github.com/penstock/penstock/relay]. It accepts and connects,
//     or takes over two connections that a program already has.
//
// Datagrams:
//
//   - a UDP socket that reads and writes in batches, with GSO and GRO, for QUIC,
//     DNS, VPN and telemetry: [github.com/penstock/penstock/dgram].
//
// Memory:
//
//   - objects that are worth keeping for a while, with a bound and a hook for
//     each that leaves, and byte buffers by size:
//     [github.com/penstock/penstock/pool].
//
// The packages depend on the standard library and golang.org/x/sys. They log
// nothing, read no environment, and run no code on import. They are written for Linux;
// elsewhere they compile, and what needs Linux returns errors.ErrUnsupported,
// or, in package splice, copies.
package penstock
