// Package sandboxed is how this process enters its sandbox, what the keeper is told of that, and what this process may not do from then on.
package sandboxed
