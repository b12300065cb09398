// Package keeping is what one worker leaves to the next, and how it reads it.
package keeping
