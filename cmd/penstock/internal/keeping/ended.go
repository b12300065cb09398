package keeping

import (
	"encoding/json"
	"sync"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
)

// Ended is the document of the flows that ended last.
type Ended struct {
	All      []api.EndedFlow `json:"all"`
	Problems []api.EndedFlow `json:"problems"`
}

const (
	labelEnded   = "ended"
	labelRecords = "records"
)

// ended is what one worker leaves to the next of the flows that ended in it.
type ended struct {
	file   *saved.Document
	read   sync.Once
	before Ended
}

// EndedBefore returns what the worker before has left of the flows that ended in it. It is read when somebody asks for the first time,
// because nobody relays while a worker starts, or before SaveEnded.
func (e *ended) EndedBefore() Ended {
	e.read.Do(func() {
		text, err := e.file.Read()
		if err != nil || json.Unmarshal(text, &e.before) != nil {
			e.before = Ended{} // a list for persons begins anew
		}
	})
	return e.before
}

// SaveEnded leaves the flows that ended last to the next worker.
func (e *ended) SaveEnded(s Ended) error {
	e.EndedBefore()
	text, err := json.Marshal(s)
	if err == nil {
		err = e.file.Write(text)
	}
	return err
}
