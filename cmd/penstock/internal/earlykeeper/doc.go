// Package earlykeeper makes the program the keeper of a worker, if the environment says so, before
// the packages of the daemon are initialised. What those allocate at their initialisation would be
// two thirds of the keeper's memory: Go initialises packages in the order of their import paths as soon
// as everything that they import is, and this package imports little.
//
//	penstock run ──reads the configuration, becomes by execve(2)──▶ keeper ──starts──▶ worker
//
// It is the only package that does something when it is initialised.
package earlykeeper
