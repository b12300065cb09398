package keeping

import (
	"encoding/json"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Ended is the document of the flows that ended last.
type Ended struct {
	All      []api.EndedFlow `json:"all"`
	Problems []api.EndedFlow `json:"problems"`
}

const labelEnded = "ended"

// EndedBefore returns what the worker before has left of the flows that ended in it. It is read when somebody asks for the first time,
// because nobody relays while a worker starts, or before SaveEnded.
func (k *Link) EndedBefore() Ended { return k.endedBefore() }

func (k *Link) readEnded() (s Ended) {
	text, err := k.ended.Read()
	if err != nil || json.Unmarshal(text, &s) != nil {
		return Ended{} // a list for persons begins anew
	}
	return s
}

// SaveEnded leaves the flows that ended last to the next worker.
func (k *Link) SaveEnded(s Ended) error {
	k.endedBefore()
	text, err := json.Marshal(s)
	if err == nil {
		err = k.ended.Write(text)
	}
	return err
}
