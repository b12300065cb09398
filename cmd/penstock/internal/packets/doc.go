// Package packets writes the packets of flows into a file: those between the client and the relay, and those between the relay and the
// member. It takes them from a packet socket, so that it sees what is on the wire, and nothing changes for the relay. What is written, in
// what order, and with which words, is decided here from values: packets, flows and times.
package packets
