// Package ledger lays out the memory in which an event loop notes what the next process needs to continue
// its flows: one anonymous file per loop, mapped by the process that relays, and held by another, so that
// it outlives the first.
//
// A ledger is written with plain stores. It is only ever read after the writer is dead, so that nothing has
// to be atomic but each store by itself; the writer orders its stores so that a ledger makes sense after
// each of them. See docs/invariants.md.
//
//	header    magic, version, feature bits, sizes and places of the other parts
//	turn      which flow's code runs, and what it has in its hands: Turn
//	stats     a struct of counters, used in place, with the names of its words: StatsOf
//	scratch   the buffer of every copy
//	strings   names that many flows share, written once: Intern
//	records   one per settled flow, by slot: Record
//	arena     blocks of bytes that a flow holds: Arena
//
// Everything is little-endian, except for the stats and the headers of messages, which are the machine's.
// Only 64-bit systems have enough room for the address space that a ledger reserves.
package ledger
