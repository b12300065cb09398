//go:build !penstock_portable

package pool

// portable is whether the build has the tag penstock_portable.
const portable = false
