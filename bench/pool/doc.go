// Package pool measures penstock's pool beside sync.Pool and the buffer pools
// that others use. The benchmarks are named and shaped as those of Go's own pool
// test, with the implementation as an axis:
//
//	go test -run='^$' -bench=. -cpu=1,2 ./pool
//
// Ratios between implementations of one run are what counts. run.sh takes
// several rounds, each with all implementations in turn, and prints medians.
package pool
