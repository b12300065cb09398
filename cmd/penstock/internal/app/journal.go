package app

import (
	"log/slog"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
)

// A journal is what operators are told: lines of the log, and events, which the API shows.
type journal struct {
	*slog.Logger
	level  *slog.LevelVar
	events *admin.Events
}

// event adds an event to those that the API shows.
func (j *journal) event(level slog.Level, kind, subject, message string) {
	j.eventBy("", level, kind, subject, message)
}

// eventBy adds an event that somebody asked for.
func (j *journal) eventBy(by string, level slog.Level, kind, subject, message string) {
	j.events.Add(api.Event{Level: logs.LevelName(level), Kind: kind, Subject: subject, Message: message, By: by})
}
