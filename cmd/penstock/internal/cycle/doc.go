// Package cycle finds members that lead back to the listener through which a flow came: such a flow would take all
// descriptors within a second.
package cycle
