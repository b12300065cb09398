// Package admission decides which new clients of a loop's datagram listeners begin flows.
//
// A flood of datagrams from ever new addresses must not take the time that a loop
// needs for the flows that it has. Beginning a flow takes thirty times as long as
// dropping a datagram. So new clients get what is left of a loop's time, and no more:
//
//   - The datagrams of flows leave before any flow begins: those of a batch, before
//     its new clients are looked at.
//   - While datagrams have to wait, flows begin only as fast as a part of the time
//     allows that the loop's other work has left. That is a budget in time, which is filled
//     up as time passes, and from which flows that begin take what that has taken.
//   - Half of the budget is for new clients of networks that are known, because clients
//     there have shown that their addresses are not forged, or had answers before the
//     flood. What one half does not need is the other's.
//   - That goes on for as long as there would be no time to begin all that ask. A loop that keeps up
//     because it refuses most of them would else begin them all once a second, and fall behind.
//   - When little is left in a half, a network gets the less the more flows it has begun
//     lately, so that all networks that want more than their share get the same.
//
// Whoever gets nothing is dropped, which costs a look at two tables. While no datagrams have
// to wait, nobody is.
//
// It makes no system calls and reads no clock: times are those of the loop, since its start.
package admission
