package earlykeeper

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock/keeper"
)

// Variable is the environment variable that makes the program a keeper. Its value is a [Settings] as JSON.
const Variable = "PENSTOCK_KEEPER_SETTINGS"

// LabelConfig is the label of the item that a worker has from the beginning, before it takes over: the
// last configuration that was applied.
const LabelConfig = "config"

// LabelState is the label of the document of what the daemon knows.
const LabelState = "state"

// LabelAdmin is the beginning of the label of a socket of the admin listener; its address follows.
const LabelAdmin = "admin "

// labelLedger is the label of package relay for the memory of flows. A worker of another version has it
// from the beginning too, to see whether it can read it.
const labelLedger = "ledger"

// Settings are what the keeper is told by the process that it was: it reads no configuration.
type Settings struct {
	Binary          string        `json:"binary"`              // path of the program, for upgrades
	Inherited       int           `json:"inherited,omitempty"` // descriptors from 3 on that the worker inherits
	Watchdog        time.Duration `json:"watchdog"`            // 0: none
	StartTimeout    time.Duration `json:"start_timeout"`
	HealthyAfter    time.Duration `json:"healthy_after"` // 0: at once
	MaxRestartDelay time.Duration `json:"max_restart_delay"`
	LogFormat       string        `json:"log_format"` // of the keeper's own lines: json, text or LogForPerson
}

// Times returns the times of s as package keeper has them.
func (s *Settings) Times() keeper.Times {
	never := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	return keeper.Times{ReadyTimeout: s.StartTimeout, Watchdog: never(s.Watchdog), Healthy: never(s.HealthyAfter), MaxBackoff: s.MaxRestartDelay}
}

// LogForPerson is the log format for a terminal on which a person watches: only what goes wrong is told.
const LogForPerson = "person"

// Text returns the value of the variable.
func (s *Settings) Text() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

func parse(text string) (s Settings, err error) {
	if err = json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("%s: %w", Variable, err)
	}
	return s, nil
}
