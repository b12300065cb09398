// Package admit says who may come in. A [Gate] is asked for each new flow of a
// listener: it knows who is allowed, and counts. A PROXY header is read by a pure
// function, [ParseProxy].
package admit
