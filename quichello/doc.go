// Package quichello reads the name of the server that a QUIC client wants (SNI), and the application
// protocols that it offers (ALPN), from the first datagrams of its connection. Its API may change after
// version 1.0 of the module; CHANGELOG.md then says how to follow. With these names a relay can
// choose an upstream without taking part in the connection.
//
// The first packets of a client, of type Initial, are encrypted, with keys that follow from the
// connection ID in their header (RFC 9001, 5.2): anybody can read them, and make them. They carry the
// TLS ClientHello in CRYPTO frames, which come in any order, divided over packets and datagrams: one with
// post-quantum key shares needs two datagrams, and browsers shuffle it on purpose.
//
// An [Assembler] gets the datagrams of one client as they come, until it has the ClientHello. It sends
// nothing, and changes nothing in the datagrams, which are to be forwarded as they are, in their order.
// [ParseHeader] reads what every QUIC packet shows, such as the connection ID by which a caller tells
// connections from each other that begin at one address.
//
// Versions 1 (RFC 9000) and 2 (RFC 9369) are known. A ClientHello is not authenticated. What an Assembler
// keeps is limited to [MaxDatagrams], and it takes only what RFC 9000 asks of a client: a datagram with an
// Initial packet has at least [MinDatagram] bytes.
//
// The package imports the standard library and package clienthello only, and works on all systems.
package quichello
