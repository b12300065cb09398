// Package liveflows ends open flows on the occasions for which the configuration has the words live-flows: their listener, route or member was
// removed, their member has gone down or was ejected, they are on a backup while a primary is up again, or their member has more of them than
// one that has come later.
package liveflows
