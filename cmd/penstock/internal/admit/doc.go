// Package admit is admission control: a [Controller] decides for each new flow of a
// listener whether it is accepted, by access lists and limits. [ParseProxy] is a pure
// function that parses a PROXY header.
package admit
