// Package counts keeps counters in memory that may outlive the process.
//
// A [Memory] has named tables, a [Table] has rows, and a [Row] has a key and a fixed number of
// 64-bit words, each with a name, which are updated atomically in place. Whatever was counted is
// therefore in the memory at every moment, even if the process is killed at the next instruction.
// The next process opens the same memory and counts on.
//
// The names of the words are stored in front, so that another version of the program finds the
// words that it knows, and keeps those that it does not know for the version after it.
//
//	header ▸ directory: tables, and names of words ▸ rows of a table ▸ rows of the next ...
//
// The memory is given as words, because that is all that it takes: names and keys are packed into
// words too. Tables without such memory ([Heap]) keep their rows in the heap.
package counts
