// Package hooks is what the daemon does with one flow, from the first byte to the record: the functions that the engine calls.
package hooks
