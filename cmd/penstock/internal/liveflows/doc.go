// Package liveflows ends open flows on the occasions for which the configuration has the words live-flows: their listener, route or member was
// removed, their member has gone down or was ejected, or they are on a backup while a primary is up again.
package liveflows
