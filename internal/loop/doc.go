// Package loop is an event loop: a goroutine that waits for events of sockets and for timers, reads what other goroutines ask
// of it, and keeps a table of flows. What is to be done about any of these its handlers know.
//
//	Loop      epoll, and the order of a turn
//	Request   the mailbox, by which others reach it
//	Slots     the table of flows, and their generations
//	Slab      the flows of one handler, each at its slot
//	Walk      visits all flows, some at a time
//	wheel     timers, in ticks
//
// It knows nothing of what flows are, and of sockets no more than their descriptors.
package loop
