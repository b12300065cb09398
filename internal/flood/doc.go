// Package flood decides which new clients of a loop's datagram listeners begin flows.
//
// A flood of datagrams from ever new addresses must not take the time that a loop
// needs for the flows that it has. Beginning a flow takes thirty times as long as
// dropping a datagram. So new clients get the time that is left, and no more:
//
//   - The datagrams of existing flows are forwarded first: within a batch, before its
//     new clients are looked at.
//   - While datagrams have to wait, flows begin only as fast as a share of the time
//     allows that the loop's other work leaves. The share is a budget of time. It is
//     filled as time passes, and each flow that begins takes from it what that cost.
//   - Half of the budget is for new clients of known networks: a client from there has
//     shown that its address is not forged, or had an answer before the flood. What one
//     half does not need goes to the other.
//   - This lasts for as long as there would be no time to begin all flows that are asked
//     for. Otherwise a loop that keeps up only because it refuses most of them would begin
//     them all once a second, and fall behind.
//   - When little is left in a half, a network gets less the more flows it has begun
//     lately, so that all networks that want more than their share get the same.
//
// The datagrams of a client that gets nothing are dropped, which costs a look at two
// tables. While no datagrams have to wait, no client is refused.
//
// Package flood makes no system calls and reads no clock: times are those of the loop,
// since its start.
package flood
