// Package budget measures how much memory the daemon uses of what it may use, and sheds load when it
// runs short.
//
//	control groups, /proc ─▶ Meter ─▶ pressure ─▶ Controller ─▶ the engine's actions
package budget
