//go:build !linux

package dgram

var levels = []level{portableLevel}
