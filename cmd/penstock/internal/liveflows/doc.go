// Package liveflows ends flows whose listener, route or member was removed, when their routes say so.
package liveflows
