// Package destination is where flows go whose group has no members: to the name that their client asks for. It has which names may
// be asked for, which addresses are refused, and a bounded cache of what the resolver says.
//
// What was checked is what is connected to: an address is checked for each flow, after the name was looked up and before anything
// connects, and the flow gets the address, not the name. So a name whose addresses change between two answers gains nothing.
package destination
