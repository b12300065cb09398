// Package conformance holds the tests of the library that need modules which
// the library itself must not depend on.
package conformance
