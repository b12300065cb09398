// Package simkernel is a kernel in memory: TCP, UDP and Unix sockets, pipes, epoll instances and descriptors of several processes,
// without time and without threads. What happens next is what its caller does next, so that one seed is one run.
//
// It behaves as Linux does where an engine can see it, and is compared with Linux call by call in its tests. It does not have segments
// and acknowledgements: what a socket has accepted is delivered to its peer at once, or when the caller says so (World.Slow).
package simkernel
