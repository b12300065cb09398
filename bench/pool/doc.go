// Package pool compares penstock's pool with sync.Pool and with other buffer pools. The benchmarks
// have the names and shapes of those in Go's own pool test, with the implementation as an axis:
//
//	go test -run='^$' -bench=. -cpu=1,2 ./pool
//
// What counts is the ratio between implementations in one run. run.sh runs several rounds, each
// with all implementations in turn, and prints medians.
package pool
