// Package lists has lists of networks that change while the daemon runs: those of the configuration, which are read from files and
// elsewhere, and the networks that operators have banned.
//
// The networks of a list are a [Set], which never changes; a list that is read again has another one. So a lookup takes no lock and
// allocates nothing. Lists outlive a configuration: a reload goes on with those that are the same.
package lists
