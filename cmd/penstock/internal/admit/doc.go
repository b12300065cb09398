// Package admit says who may come in. What a client says before it is routed is
// read by pure functions: a PROXY header by [ParseProxy], a ClientHello by
// [ParseHello].
package admit
