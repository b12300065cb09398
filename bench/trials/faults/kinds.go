//go:build linux

package main

import "slices"

// kinds are all of them, in the order of the document.
var kinds = slices.Concat(upstreamKinds, hostileKinds, floodKinds, limitKinds, logKinds, lookupKinds, processKinds, placeKinds)
