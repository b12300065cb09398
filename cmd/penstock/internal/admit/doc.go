// Package admit says who may come in. A [Gate] is asked for each new flow of a
// listener: it knows who is allowed, and counts. What a client says before it is
// routed is read by pure functions: a PROXY header by [ParseProxy], a ClientHello
// by [ParseHello].
package admit
